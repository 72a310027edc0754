// Connections to edges, kept and used again: HTTP/1.1 by hand, because Node's own client costs more than the rest of a
// passed call, and because bytes read into buffers that are used again keep memory bounded at any rate.
import { connect, type Socket } from "node:net";
import { ChunkedEnd, HeadCollector, parseHead, type ResponseHead } from "./response-reader.ts";

const smallBuffer = 16 * 1024;
const largeBuffer = 256 * 1024;
const maxSpare = 64;
const maxIdle = 512;
/** Shorter than edges keep an idle connection (600 s), so that none is used as it closes. */
const maxIdleMs = 300_000;

/** What an exchange tells its caller. After `end` or `fail` nothing more comes. */
export interface Receiver {
  head(head: ResponseHead): void;
  /**
   * Bytes of the body as on the wire (`raw`) or without chunk sizes. They may be used until `release` is called, which
   * must happen. Returning false stops the reading until `resume`.
   */
  data(bytes: Buffer, release: () => void): boolean;
  end(): void;
  /** `unsent`: the edge cannot have seen anything of the call. */
  fail(error: Error, unsent: boolean): void;
}

const spare: Buffer[] = [];

function takeLarge(): Buffer {
  return spare.pop() ?? Buffer.allocUnsafeSlow(largeBuffer);
}

function giveBack(buffer: Buffer): void {
  if (buffer.length === largeBuffer && spare.length < maxSpare) spare.push(buffer);
}

/** Idle connections of each socket path, last used first. */
export class EdgeConnections {
  readonly #idle = new Map<string, Connection[]>();

  /** Starts a call. The head is the request's bytes up to its empty line, or beyond where the body is there already. */
  start(socketPath: string, method: string, head: Buffer, raw: boolean, receiver: Receiver): Connection {
    const connection = this.#take(socketPath) ?? new Connection(socketPath, this);
    connection.begin(method, head, raw, receiver);
    return connection;
  }

  keep(connection: Connection): void {
    const idle = this.#idle.get(connection.socketPath);
    if (idle === undefined) this.#idle.set(connection.socketPath, [connection]);
    else if (idle.length < maxIdle) idle.push(connection);
    else connection.destroy();
  }

  forget(connection: Connection): void {
    const idle = this.#idle.get(connection.socketPath);
    const at = idle?.indexOf(connection) ?? -1;
    if (at >= 0) idle?.splice(at, 1);
  }

  /** Closes what is idle. */
  close(): void {
    for (const idle of this.#idle.values()) for (const connection of [...idle]) connection.destroy();
  }

  #take(socketPath: string): Connection | undefined {
    const idle = this.#idle.get(socketPath);
    for (let connection = idle?.pop(); connection !== undefined; connection = idle?.pop()) {
      if (connection.usable) return connection;
      connection.destroy();
    }
    return undefined;
  }
}

export class Connection {
  readonly socketPath: string;
  readonly #owner: EdgeConnections;
  readonly #socket: Socket;
  #connected = false;
  #receiver: Receiver | undefined;
  #method = "";
  #raw = true;
  #collector = new HeadCollector();
  #head: ResponseHead | undefined;
  #left = 0;
  #chunked: ChunkedEnd | undefined;
  #requestEnded = false;
  #idleSince = performance.now();
  #buffer: Buffer = Buffer.allocUnsafeSlow(smallBuffer);
  /** Pieces of the buffer that a receiver still reads from. */
  #holds = { count: 0 };

  constructor(socketPath: string, owner: EdgeConnections) {
    this.socketPath = socketPath;
    this.#owner = owner;
    this.#socket = connect({
      path: socketPath,
      highWaterMark: largeBuffer,
      onread: {
        buffer: () => this.#nextBuffer(),
        callback: (size: number, buffer: Uint8Array) =>
          this.#onRead(Buffer.from(buffer.buffer, buffer.byteOffset, size)),
      },
    } as never);
    this.#socket.on("connect", () => {
      this.#connected = true;
    });
    this.#socket.on("error", (error) => this.#onGone(error));
    this.#socket.on("end", () => this.#onGone(undefined));
    this.#socket.on("close", () => this.#onGone(undefined));
  }

  get usable(): boolean {
    return (
      performance.now() - this.#idleSince < maxIdleMs &&
      !this.#socket.destroyed &&
      this.#socket.writable &&
      this.#receiver === undefined
    );
  }

  begin(method: string, head: Buffer, raw: boolean, receiver: Receiver): void {
    this.#receiver = receiver;
    this.#method = method;
    this.#raw = raw;
    this.#head = undefined;
    this.#requestEnded = false;
    this.#socket.ref();
    this.#socket.write(head);
  }

  /** Bytes of the request's body, framed already. Returns false when the caller should wait for `onDrain`. */
  write(bytes: Buffer | string): boolean {
    return this.#socket.write(bytes);
  }

  cork(): void {
    this.#socket.cork();
  }

  uncork(): void {
    this.#socket.uncork();
  }

  /** The request's body is whole; without this the connection is not used again. */
  requestEnded(): void {
    this.#requestEnded = true;
  }

  onDrain(run: () => void): void {
    this.#socket.on("drain", run);
  }

  offDrain(run: () => void): void {
    this.#socket.off("drain", run);
  }

  resume(): void {
    this.#socket.resume();
  }

  /** Ends the call for good: the edge sees a broken connection. */
  destroy(): void {
    this.#receiver = undefined;
    this.#owner.forget(this);
    this.#socket.destroy();
  }

  /** A buffer that nobody reads from; larger once a read has filled it. */
  #nextBuffer(): Buffer {
    if (this.#holds.count > 0) {
      this.#useBuffer(this.#buffer.length === largeBuffer ? takeLarge() : Buffer.allocUnsafeSlow(smallBuffer));
    }
    return this.#buffer;
  }

  #useBuffer(buffer: Buffer): void {
    if (this.#holds.count === 0) giveBack(this.#buffer);
    this.#buffer = buffer;
    this.#holds = { count: 0 };
  }

  #onRead(bytes: Buffer): boolean {
    const receiver = this.#receiver;
    if (receiver === undefined) {
      // Nothing was asked: what the edge says cannot be an answer.
      this.destroy();
      return false;
    }
    try {
      const filled = bytes.length === this.#buffer.length;
      const more = this.#take(bytes, receiver);
      if (filled && this.#buffer.length === smallBuffer && this.#receiver !== undefined) this.#useBuffer(takeLarge());
      return more;
    } catch (error) {
      this.#fail(error instanceof Error ? error : new Error(String(error)));
      return false;
    }
  }

  #take(bytes: Buffer, receiver: Receiver): boolean {
    let rest = bytes;
    while (this.#head === undefined) {
      const found = this.#collector.take(rest);
      if (found === undefined) return true;
      rest = found.rest;
      const head = parseHead(found.text, this.#method);
      // 100 and 102 announce the answer; they are not it.
      if (head.status < 200) continue;
      this.#head = head;
      this.#left = head.length;
      this.#chunked = head.framing === "chunked" ? new ChunkedEnd() : undefined;
      receiver.head(head);
      if (this.#receiver !== receiver) return false;
      if (head.framing === "none") {
        this.#done(rest.length);
        return true;
      }
    }
    return rest.length === 0 ? true : this.#body(rest, receiver);
  }

  #body(bytes: Buffer, receiver: Receiver): boolean {
    const head = this.#head as ResponseHead;
    let used = bytes.length;
    let done = false;
    let more = true;
    if (head.framing === "length") {
      used = Math.min(this.#left, bytes.length);
      this.#left -= used;
      done = this.#left === 0;
    } else if (this.#chunked !== undefined) {
      const payload = this.#raw ? undefined : (piece: Buffer) => void this.#deliver(piece, receiver);
      ({ used, done } = this.#chunked.take(bytes, payload));
    }
    if (this.#raw || this.#chunked === undefined) more = this.#deliver(bytes.subarray(0, used), receiver);
    if (this.#receiver !== receiver) return false;
    if (done) {
      this.#done(bytes.length - used);
      return true;
    }
    return more;
  }

  #deliver(bytes: Buffer, receiver: Receiver): boolean {
    const buffer = this.#buffer;
    // A head that came in pieces was copied out: such bytes lie elsewhere and need no care.
    const own = bytes.buffer === buffer.buffer;
    if (!own) return receiver.data(bytes, () => {});
    const holds = this.#holds;
    holds.count++;
    let held = true;
    return receiver.data(bytes, () => {
      if (!held) return;
      held = false;
      holds.count--;
      if (holds.count === 0 && holds !== this.#holds) giveBack(buffer);
    });
  }

  #done(extra: number): void {
    const receiver = this.#receiver as Receiver;
    const head = this.#head as ResponseHead;
    this.#receiver = undefined;
    this.#collector = new HeadCollector();
    const again = head.keepAlive && this.#requestEnded && extra === 0;
    receiver.end();
    if (!again) {
      this.#socket.destroy();
      return;
    }
    // An idle connection holds little.
    if (this.#buffer.length === largeBuffer) this.#useBuffer(Buffer.allocUnsafeSlow(smallBuffer));
    this.#idleSince = performance.now();
    this.#socket.resume();
    this.#socket.unref();
    this.#owner.keep(this);
  }

  #onGone(error: Error | undefined): void {
    this.#owner.forget(this);
    const receiver = this.#receiver;
    if (receiver === undefined) {
      this.#socket.destroy();
      return;
    }
    if (error === undefined && this.#head?.framing === "close") {
      this.#receiver = undefined;
      this.#socket.destroy();
      receiver.end();
      return;
    }
    this.#fail(error ?? new Error("the edge closed the connection before its answer was whole"));
  }

  #fail(error: Error): void {
    const receiver = this.#receiver;
    this.#receiver = undefined;
    this.#owner.forget(this);
    this.#socket.destroy();
    receiver?.fail(error, !this.#connected);
  }
}
