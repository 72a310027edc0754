// A tar stream, read entry by entry (ustar, pax, GNU long names). What it says is not trusted: sizes are checked here,
// names by whoever writes them.
import { DsecError } from "@dsec/api";

export interface TarEntry {
  name: Buffer;
  /** "0" file, "1" hard link, "2" link, "5" directory; others as in the archive. */
  type: string;
  mode: number;
  size: number;
  /** Unix seconds. */
  mtime: number;
  link: Buffer;
}

export interface TarSink {
  entry(entry: TarEntry): void;
  /** Content of the last entry, in order. */
  data(part: Buffer): void;
  /** The last entry's content is whole. */
  end(): void;
}

const block = 512;
const maxExtendedBytes = 1 << 20;

export class TarReader {
  readonly #sink: TarSink;
  #held: Buffer = Buffer.alloc(0);
  #left = 0;
  #padding = 0;
  #extended: { type: string; parts: Buffer[] } | undefined;
  #next: { path?: Buffer; link?: Buffer; size?: number; mtime?: number } = {};
  #done = false;

  constructor(sink: TarSink) {
    this.#sink = sink;
  }

  /** @throws DsecError ARCHIVE_INVALID; whatever the sink throws */
  push(chunk: Buffer): void {
    let buffer = this.#held.length > 0 ? Buffer.concat([this.#held, chunk]) : chunk;
    while (buffer.length > 0 && !this.#done) {
      if (this.#left > 0) {
        const part = buffer.subarray(0, this.#left);
        this.#left -= part.length;
        if (this.#extended) this.#extended.parts.push(part);
        else this.#sink.data(part);
        buffer = buffer.subarray(part.length);
        if (this.#left === 0) this.#content();
      } else if (this.#padding > 0) {
        const skipped = Math.min(this.#padding, buffer.length);
        this.#padding -= skipped;
        buffer = buffer.subarray(skipped);
      } else if (buffer.length < block) break;
      else {
        this.#header(buffer.subarray(0, block));
        buffer = buffer.subarray(block);
      }
    }
    this.#held = this.#done ? Buffer.alloc(0) : buffer;
  }

  /** @throws DsecError ARCHIVE_INVALID when the archive was cut short */
  finish(): void {
    if (!this.#done) throw new DsecError("ARCHIVE_INVALID", "the archive was cut short");
  }

  #header(head: Buffer): void {
    if (head.every((byte) => byte === 0)) {
      this.#done = true;
      return;
    }
    let sum = 8 * 32;
    for (let i = 0; i < block; i++) if (i < 148 || i >= 156) sum += head[i] as number;
    if (sum !== number(head, 148, 8)) throw new DsecError("ARCHIVE_INVALID", "a header's checksum is wrong");
    const type = head[156] === 0 || head[156] === 0x37 ? "0" : String.fromCharCode(head[156] as number);
    let size = number(head, 124, 12);
    if (type === "x" || type === "g" || type === "L" || type === "K") {
      if (size > maxExtendedBytes) throw new DsecError("ARCHIVE_INVALID", `an extended header of ${size} bytes`);
      this.#extended = { type, parts: [] };
      this.#begin(size);
      return;
    }
    const over = this.#next;
    this.#next = {};
    size = type === "0" ? (over.size ?? size) : 0;
    const prefix =
      head.subarray(257, 262).toString("latin1") === "ustar" && head[262] === 0
        ? field(head, 345, 155)
        : Buffer.alloc(0);
    const short = field(head, 0, 100);
    const name = over.path ?? (prefix.length > 0 ? Buffer.concat([prefix, Buffer.from("/"), short]) : short);
    this.#sink.entry({
      name,
      type,
      mode: number(head, 100, 8),
      size,
      mtime: over.mtime ?? number(head, 136, 12),
      link: over.link ?? field(head, 157, 100),
    });
    this.#begin(size);
  }

  #begin(size: number): void {
    this.#left = size;
    this.#padding = (block - (size % block)) % block;
    if (size === 0) this.#content();
  }

  #content(): void {
    const extended = this.#extended;
    this.#extended = undefined;
    if (!extended) {
      this.#sink.end();
      return;
    }
    const body = Buffer.concat(extended.parts);
    if (extended.type === "L") this.#next.path = untilNul(body);
    else if (extended.type === "K") this.#next.link = untilNul(body);
    else if (extended.type === "x") this.#pax(body);
  }

  #pax(body: Buffer): void {
    for (let at = 0; at < body.length; ) {
      const space = body.indexOf(0x20, at);
      const length = space < 0 ? Number.NaN : Number(body.toString("latin1", at, space));
      if (!Number.isInteger(length) || length <= space - at + 1 || at + length > body.length)
        throw new DsecError("ARCHIVE_INVALID", "a damaged pax header");
      const equals = body.indexOf(0x3d, space);
      const key = body.toString("latin1", space + 1, equals);
      const value = body.subarray(equals + 1, at + length - 1);
      if (key === "path") this.#next.path = Buffer.from(value);
      else if (key === "linkpath") this.#next.link = Buffer.from(value);
      else if (key === "size") this.#next.size = whole(value.toString("latin1"));
      else if (key === "mtime") this.#next.mtime = Number(value.toString("latin1")) || 0;
      at += length;
    }
  }
}

function field(head: Buffer, at: number, length: number): Buffer {
  return untilNul(head.subarray(at, at + length));
}

function untilNul(bytes: Buffer): Buffer {
  const end = bytes.indexOf(0);
  return Buffer.from(end < 0 ? bytes : bytes.subarray(0, end));
}

/** Octal text, or GNU's base 256. */
function number(head: Buffer, at: number, length: number): number {
  if (((head[at] as number) & 0x80) !== 0) {
    let value = 0;
    for (let i = at + 1; i < at + length; i++) value = value * 256 + (head[i] as number);
    return checked(value);
  }
  const text = head
    .toString("latin1", at, at + length)
    .replace(/[\0 ]+$/, "")
    .trim();
  if (!/^[0-7]*$/.test(text)) throw new DsecError("ARCHIVE_INVALID", "a number in a header is damaged");
  return checked(text === "" ? 0 : Number.parseInt(text, 8));
}

function whole(text: string): number {
  if (!/^\d+$/.test(text)) throw new DsecError("ARCHIVE_INVALID", "a size in a pax header is damaged");
  return checked(Number(text));
}

function checked(value: number): number {
  if (!Number.isSafeInteger(value)) throw new DsecError("ARCHIVE_INVALID", "a number in a header is too large");
  return value;
}
