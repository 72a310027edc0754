// The answer of an edge on its connection: a head, then a body whose end is known from its framing. The body's bytes are
// handed on as they came, chunk sizes and all, so that nothing is copied or framed again on the way to the caller.

export interface ResponseHead {
  readonly status: number;
  readonly statusText: string;
  /** Names (lower case) and values in turn. */
  readonly headers: readonly string[];
  readonly framing: Framing;
  /** The connection can be used again. */
  readonly keepAlive: boolean;
}

export type Framing = "none" | "length" | "chunked" | "close";

const maxHeadBytes = 64 * 1024;
const maxSizeLine = 256;

/** Parses the text before the empty line. Throws an Error where it is not HTTP/1.1. */
export function parseHead(text: string, method: string): ResponseHead & { length: number } {
  const lines = text.split("\r\n");
  const status = /^HTTP\/1\.([01]) ([1-5][0-9]{2})(?: (.*))?$/.exec(lines[0] ?? "");
  if (status === null) throw new Error("the answer is not HTTP/1.1");
  const code = Number(status[2]);
  const headers: string[] = [];
  let length: number | undefined;
  let chunked = false;
  let keepAlive = status[1] === "1";
  for (let i = 1; i < lines.length; i++) {
    const line = lines[i] as string;
    const colon = line.indexOf(":");
    if (colon <= 0) throw new Error("a header of the answer has no name");
    const name = line.slice(0, colon).toLowerCase();
    const value = line.slice(colon + 1).trim();
    headers.push(name, value);
    if (name === "content-length") {
      if (!/^[0-9]{1,15}$/.test(value)) throw new Error("the answer's content-length is no number");
      length = Number(value);
    } else if (name === "transfer-encoding") chunked = value.toLowerCase() === "chunked";
    else if (name === "connection") keepAlive = value.toLowerCase() !== "close" && keepAlive;
  }
  let framing: Framing;
  if (method === "HEAD" || code < 200 || code === 204 || code === 304) framing = "none";
  else if (chunked) framing = "chunked";
  else framing = length === undefined ? "close" : length === 0 ? "none" : "length";
  return {
    status: code,
    statusText: status[3] ?? "",
    headers,
    framing,
    keepAlive: keepAlive && framing !== "close",
    length: length ?? 0,
  };
}

/** Finds the end of a chunked body in bytes that pass by. */
export class ChunkedEnd {
  /** Bytes of data or line ends that are left before the next line is read. */
  #skip = 0;
  #line = "";
  /** After the last chunk: lines of trailers up to an empty one. */
  #last = false;

  /**
   * Takes the next bytes. Returns how many of them belong to the body, and whether it ends there.
   * @param payload gets each piece of data, where only that is wanted
   */
  take(bytes: Buffer, payload?: (piece: Buffer) => void): { used: number; done: boolean } {
    let at = 0;
    while (at < bytes.length) {
      if (this.#skip > 0) {
        const piece = Math.min(this.#skip, bytes.length - at);
        // The last two of them are the line end after the data.
        const data = Math.max(0, Math.min(piece, this.#skip - 2));
        if (payload !== undefined && data > 0) payload(bytes.subarray(at, at + data));
        this.#skip -= piece;
        at += piece;
        continue;
      }
      const end = bytes.indexOf(10, at);
      this.#line += bytes.toString("latin1", at, end < 0 ? bytes.length : end);
      if (this.#line.length > maxSizeLine && !this.#last) throw new Error("a chunk's size of the answer is too long");
      if (this.#line.length > maxHeadBytes) throw new Error("the answer's trailers are too long");
      if (end < 0) return { used: bytes.length, done: false };
      at = end + 1;
      const line = this.#line.endsWith("\r") ? this.#line.slice(0, -1) : this.#line;
      this.#line = "";
      if (this.#last) {
        if (line === "") return { used: at, done: true };
        continue;
      }
      const size = /^([0-9a-fA-F]{1,12})(?:[ \t]*;.*)?$/.exec(line)?.[1];
      if (size === undefined) throw new Error("a chunk of the answer has no size");
      const bytesInChunk = Number.parseInt(size, 16);
      if (bytesInChunk === 0) this.#last = true;
      else this.#skip = bytesInChunk + 2;
    }
    return { used: at, done: false };
  }
}

/** Collects a head that may come in pieces. */
export class HeadCollector {
  #text: Buffer | undefined;

  /** The head's text and what came after it, or undefined while it is not whole. */
  take(bytes: Buffer): { text: string; rest: Buffer } | undefined {
    const all = this.#text === undefined ? bytes : Buffer.concat([this.#text, bytes]);
    const end = all.indexOf("\r\n\r\n");
    if (end < 0) {
      if (all.length > maxHeadBytes) throw new Error("the answer's head is too large");
      // Copied: the buffer is read into again.
      this.#text = Buffer.from(all);
      return undefined;
    }
    this.#text = undefined;
    return { text: all.toString("latin1", 0, end), rest: all.subarray(end + 4) };
  }
}
