// Create keys and tombstones on disk: lines of JSON, appended, rewritten when most of them are stale.
import { closeSync, openSync, readFileSync, renameSync, writeSync } from "node:fs";
import type { EndReason } from "@dsec/api";

export type JournalLine =
  /** A create begins. */
  | { t: "key"; p: string; k: string; d: string; i: string; at: number }
  /** It failed and was cleaned: the key is as good as unused. */
  | { t: "fail"; p: string; k: string }
  /** A retry asked for the key. */
  | { t: "mark"; p: string; k: string; a: number; at: number }
  /** A sandbox ended. */
  | { t: "end"; i: string; p: string; r: EndReason; at: number; c: number; m?: string };

const slack = 20_000;

export class Journal {
  private readonly path: string;
  private fd = -1;
  private lines = 0;

  constructor(path: string) {
    this.path = path;
  }

  /** Opens the journal and returns its lines; a last line cut by a crash, or a damaged one, is left out. */
  open(): JournalLine[] {
    const lines: JournalLine[] = [];
    let text = "";
    try {
      text = readFileSync(this.path, "utf8");
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    }
    for (const line of text.split("\n")) {
      const parsed = parse(line);
      if (parsed) lines.push(parsed);
    }
    this.fd = openSync(this.path, "a", 0o600);
    if (text !== "" && !text.endsWith("\n")) writeSync(this.fd, "\n");
    this.lines = lines.length;
    return lines;
  }

  /** On disk when it returns (in the kernel's cache: a node that goes down takes its sandboxes with it anyway). */
  append(line: JournalLine): void {
    writeSync(this.fd, `${JSON.stringify(line)}\n`);
    this.lines++;
  }

  /** @param live number of lines that a rewrite would have */
  needsCompaction(live: number): boolean {
    return this.lines > live * 2 + slack;
  }

  compact(lines: Iterable<JournalLine>): void {
    const temporary = `${this.path}.new`;
    const fd = openSync(temporary, "w", 0o600);
    let batch = "";
    let count = 0;
    for (const line of lines) {
      batch += `${JSON.stringify(line)}\n`;
      count++;
      if (batch.length > 1 << 20) {
        writeSync(fd, batch);
        batch = "";
      }
    }
    writeSync(fd, batch);
    renameSync(temporary, this.path);
    closeSync(this.fd);
    this.fd = fd;
    this.lines = count;
  }

  close(): void {
    if (this.fd >= 0) closeSync(this.fd);
    this.fd = -1;
  }
}

function parse(line: string): JournalLine | undefined {
  if (line === "") return undefined;
  try {
    return JSON.parse(line) as JournalLine;
  } catch {
    return undefined;
  }
}
