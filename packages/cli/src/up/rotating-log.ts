import { closeSync, fstatSync, openSync, renameSync, writeSync } from "node:fs";

const mebibyte = 1024 * 1024;

/** A log file that becomes `.1` (and `.1` becomes `.2`) when it has `maxBytes`; at most three files are kept. */
export class RotatingLog {
  readonly file: string;
  readonly #maxBytes: number;
  #fd: number;
  #size: number;

  constructor(file: string, maxBytes = 16 * mebibyte) {
    this.file = file;
    this.#maxBytes = maxBytes;
    this.#fd = openSync(file, "a", 0o640);
    this.#size = fstatSync(this.#fd).size;
  }

  /** Never throws: a full disk must not end a server. */
  write(data: Buffer | string): void {
    try {
      if (this.#size >= this.#maxBytes) this.#rotate();
      this.#size += typeof data === "string" ? writeSync(this.#fd, data) : writeSync(this.#fd, data);
    } catch {
      // The line is lost; the server goes on.
    }
  }

  close(): void {
    closeSync(this.#fd);
  }

  #rotate(): void {
    for (const [from, to] of [
      [`${this.file}.1`, `${this.file}.2`],
      [this.file, `${this.file}.1`],
    ] as const) {
      try {
        renameSync(from, to);
      } catch {
        // Not there yet.
      }
    }
    closeSync(this.#fd);
    this.#fd = openSync(this.file, "a", 0o640);
    this.#size = 0;
  }
}
