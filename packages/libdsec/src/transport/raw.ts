// A long answer over a connection of its own. Node's HTTP client copies every piece of a body and makes a stream event of
// it; reading the socket straight into slabs costs less than half of that. HTTP/1.1 as servers send it: chunked, with a
// length, or until the end of the connection.
import { connect, type Socket } from "node:net";
import { ConnectionError } from "../errors.ts";

export interface RawResponse {
  status: number;
  /** Lower-case names. */
  headers: Map<string, string>;
  /** Pieces of the body as they come. Leaving the loop ends the connection. @throws ConnectionError for a cut body */
  body: AsyncIterable<Buffer>;
  /** Ends the connection. */
  destroy(error?: Error): void;
}

const slabBytes = 256 << 10;
/** A new slab where less than this is left of the old one. */
const leastRead = 64 << 10;
/** Reading pauses while this much waits for the reader. */
const highWater = 1 << 20;
const maxHead = 64 << 10;

/** Sends `head` and `body`; resolves when the answer's head is there. @throws ConnectionError */
export function rawRequest(host: string, port: number, head: string, body: Uint8Array): Promise<RawResponse> {
  return new Promise((resolve, reject) => new RawExchange(host, port, resolve, reject).send(head, body));
}

class RawExchange {
  readonly #socket: Socket;
  readonly #answer: (response: RawResponse) => void;
  readonly #fail: (error: Error) => void;
  readonly #queue: Buffer[] = [];
  #slab = Buffer.allocUnsafeSlow(slabBytes);
  #used = 0;
  #queued = 0;
  #wake: (() => void) | undefined;
  #head: Buffer | undefined = Buffer.alloc(0);
  #decoder: ChunkDecoder | undefined;
  /** Bytes that are still to come, where the answer has a length. */
  #left: number | undefined;
  #whole = false;
  #error: Error | undefined;
  #connected = false;
  #paused = false;

  constructor(host: string, port: number, answer: (response: RawResponse) => void, fail: (error: Error) => void) {
    this.#answer = answer;
    this.#fail = fail;
    this.#socket = connect({
      host,
      port,
      noDelay: true,
      keepAlive: true,
      onread: {
        buffer: () => {
          if (slabBytes - this.#used < leastRead) {
            this.#slab = Buffer.allocUnsafeSlow(slabBytes);
            this.#used = 0;
          }
          return this.#used === 0 ? this.#slab : this.#slab.subarray(this.#used);
        },
        callback: (count, buffer) => {
          const start = buffer.byteOffset - this.#slab.byteOffset;
          this.#used = start + count;
          this.#received(this.#slab.subarray(start, this.#used));
          this.#paused = this.#queued >= highWater;
          return !this.#paused;
        },
      },
    });
    this.#socket.on("connect", () => {
      this.#connected = true;
    });
    this.#socket.on("error", (error) =>
      this.#end(
        new ConnectionError(
          `the connection failed: ${error.message || (error as NodeJS.ErrnoException).code}`,
          this.#connected,
          error,
        ),
      ),
    );
    this.#socket.on("end", () => this.#closed());
    this.#socket.on("close", () => this.#closed());
  }

  send(head: string, body: Uint8Array): void {
    this.#socket.cork();
    this.#socket.write(head, "latin1");
    this.#socket.write(body);
    this.#socket.uncork();
  }

  #received(piece: Buffer): void {
    try {
      if (this.#head) this.#readHead(piece);
      else this.#readBody(piece);
    } catch (error) {
      this.#end(error as Error);
      this.#socket.destroy();
    }
  }

  #readHead(piece: Buffer): void {
    const all = (this.#head as Buffer).length > 0 ? Buffer.concat([this.#head as Buffer, piece]) : piece;
    const end = all.indexOf("\r\n\r\n");
    if (end < 0) {
      if (all.length > maxHead) throw new ConnectionError("the answer's head has no end", true);
      this.#head = Buffer.from(all);
      return;
    }
    const [line = "", ...rest] = all.toString("latin1", 0, end).split("\r\n");
    const status = Number(/^HTTP\/1\.[01] (\d{3})/.exec(line)?.[1]);
    if (!status) throw new ConnectionError("the answer is no HTTP", true);
    const after = all.subarray(end + 4);
    if (status < 200) {
      this.#head = Buffer.alloc(0);
      if (after.length > 0) this.#readHead(after);
      return;
    }
    this.#head = undefined;
    const headers = new Map<string, string>();
    for (const one of rest) {
      const colon = one.indexOf(":");
      if (colon > 0) headers.set(one.slice(0, colon).toLowerCase(), one.slice(colon + 1).trim());
    }
    const length = headers.get("content-length");
    if (/\bchunked\b/i.test(headers.get("transfer-encoding") ?? "")) this.#decoder = new ChunkDecoder();
    else if (length !== undefined && /^\d+$/.test(length)) this.#left = Number(length);
    if (this.#left === 0) this.#finish();
    this.#answer({ status, headers, body: this.#read(), destroy: (error) => this.#abandon(error) });
    if (after.length > 0) this.#readBody(after);
  }

  #readBody(piece: Buffer): void {
    if (this.#whole) return;
    if (this.#decoder) {
      this.#decoder.push(piece, (part) => this.#give(part));
      if (this.#decoder.ended) this.#finish();
    } else if (this.#left === undefined) this.#give(piece);
    else {
      this.#give(piece.subarray(0, this.#left));
      this.#left -= Math.min(piece.length, this.#left);
      if (this.#left === 0) this.#finish();
    }
  }

  #give(part: Buffer): void {
    if (part.length === 0) return;
    this.#queue.push(part);
    this.#queued += part.length;
    this.#wake?.();
  }

  #finish(): void {
    this.#whole = true;
    this.#wake?.();
    this.#socket.destroy();
  }

  #closed(): void {
    if (this.#whole || this.#error) return;
    // Without length and chunks the end of the connection is the end of the body.
    if (!this.#head && !this.#decoder && this.#left === undefined) this.#finish();
    else
      this.#end(
        new ConnectionError(
          this.#head ? "the connection closed without an answer" : "the body was cut",
          this.#connected,
        ),
      );
  }

  #end(error: Error): void {
    if (this.#whole || this.#error) return;
    this.#error = error;
    if (this.#head) this.#fail(error);
    this.#wake?.();
  }

  #abandon(error?: Error): void {
    if (error) this.#end(error);
    this.#socket.destroy();
  }

  async *#read(): AsyncGenerator<Buffer, void, void> {
    try {
      for (;;) {
        const part = this.#queue.shift();
        if (part) {
          this.#queued -= part.length;
          if (this.#paused && this.#queued < highWater / 2) {
            this.#paused = false;
            this.#socket.resume();
          }
          yield part;
        } else if (this.#whole) return;
        else if (this.#error) throw this.#error;
        else {
          await new Promise<void>((resolve) => {
            this.#wake = resolve;
          });
          this.#wake = undefined;
        }
      }
    } finally {
      this.#socket.destroy();
    }
  }
}

/** Takes HTTP's chunks apart without copying what is in them. */
export class ChunkDecoder {
  ended = false;
  #left = 0;
  /** "size": a line with a length; "crlf": the end of a chunk; "trailer": lines after the last chunk. */
  #state: "size" | "data" | "crlf" | "trailer" = "size";
  #line = "";

  push(piece: Buffer, give: (part: Buffer) => void): void {
    let at = 0;
    while (at < piece.length && !this.ended) {
      if (this.#state === "data") {
        const end = Math.min(piece.length, at + this.#left);
        give(piece.subarray(at, end));
        this.#left -= end - at;
        at = end;
        if (this.#left === 0) this.#state = "crlf";
        continue;
      }
      const feed = piece.indexOf(0x0a, at);
      const end = feed < 0 ? piece.length : feed;
      this.#line += piece.toString("latin1", at, end);
      if (this.#line.length > maxHead) throw new ConnectionError("a line of the body's framing has no end", true);
      at = end + 1;
      if (feed >= 0) this.#endLine();
    }
  }

  #endLine(): void {
    const line = this.#line.replace(/\r$/, "");
    this.#line = "";
    if (this.#state === "crlf") {
      if (line !== "") throw new ConnectionError("a chunk of the body is longer than it said", true);
      this.#state = "size";
    } else if (this.#state === "trailer") this.ended = line === "";
    else {
      const size = /^([0-9a-fA-F]{1,12})\s*(;.*)?$/.exec(line)?.[1];
      if (size === undefined) throw new ConnectionError("the body's framing is damaged", true);
      this.#left = Number.parseInt(size, 16);
      this.#state = this.#left === 0 ? "trailer" : "data";
    }
  }
}
