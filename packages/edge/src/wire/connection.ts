// A Unix socket that carries frames, read in large pieces without copies.
import net from "node:net";
import { type Frame, FrameReader, ProtocolError } from "./frames.ts";

const firstRead = 2 * 1024;
const largestRead = 512 * 1024;
const sharedRead = 64 * 1024;
const mostLent = 64;
const mostFree = 8;

export interface FrameHandlers {
  onFrame(frame: Frame): void;
  /** Once, after the last frame; the error is absent where the peer ended in good order. */
  onClose(error?: Error): void;
}

export class FrameConnection {
  readonly socket: net.Socket;
  private readonly reader: FrameReader;
  private readonly handlers: FrameHandlers;
  private readonly buffers = new ReadBuffers();
  private failure: Error | undefined;
  private closed = false;

  /** @param maxKind the highest kind of frame that the peer may send */
  constructor(path: string, maxKind: number, handlers: FrameHandlers) {
    this.handlers = handlers;
    this.reader = new FrameReader(maxKind);
    const { buffers } = this;
    this.socket = net.connect({
      path,
      onread: {
        buffer: () => buffers.next(),
        callback: (count: number) => {
          this.take(buffers.taken(count));
          return true;
        },
      },
    });
    this.socket.on("error", (error) => {
      this.failure ??= error;
    });
    this.socket.on("end", () => {
      if (this.reader.partial) this.failure ??= new ProtocolError("the connection ended inside a frame");
    });
    this.socket.on("close", () => {
      this.closed = true;
      this.handlers.onClose(this.failure);
    });
  }

  get isClosed(): boolean {
    return this.closed || this.socket.destroyed;
  }

  /** It has grown large buffers. */
  get readsMuch(): boolean {
    return this.buffers.size > sharedRead;
  }

  /** Names what has been read up to now, for recycle(). */
  get mark(): number {
    return this.buffers.current;
  }

  /** All that was read before the mark was taken is passed on and kept by nobody: its memory is used again. */
  recycle(mark: number): void {
    this.buffers.recycle(mark);
  }

  /** Writes bytes that are whole frames; false when the caller should wait for the callback before writing more. */
  write(bytes: Uint8Array, onWritten?: () => void): boolean {
    return this.socket.write(bytes, onWritten as (error?: Error | null) => void);
  }

  /** Stops reading; the peer is slowed by the socket's own back-pressure. */
  pause(): void {
    this.socket.pause();
  }

  resume(): void {
    this.socket.resume();
  }

  close(error?: Error): void {
    this.failure ??= error;
    this.socket.destroy();
  }

  private take(chunk: Uint8Array): void {
    // Bytes may come after we gave up: a socket reads on until the end of the tick.
    if (this.failure || this.socket.destroyed) return;
    try {
      this.reader.push(chunk, (frame) => {
        if (!this.failure && !this.socket.destroyed) this.handlers.onFrame(frame);
      });
    } catch (error) {
      this.close(error instanceof Error ? error : new Error(String(error)));
    }
  }
}

/** Memory for reads: starts small, grows while reads fill it. A part handed out is written again only after recycle(). */
class ReadBuffers {
  size = firstRead;
  /** Number of the block in use. */
  current = 0;
  private block: Buffer = Buffer.allocUnsafe(firstRead);
  private used = 0;
  private readonly lent: { number: number; block: Buffer }[] = [];
  private readonly free: Buffer[] = [];

  next(): Uint8Array {
    const room = this.block.length - this.used;
    if (room < Math.min(this.size, sharedRead)) {
      if (this.block.length === largestRead) this.lent.push({ number: this.current, block: this.block });
      // Without recycle() the collector has them.
      if (this.lent.length > mostLent) this.lent.length = 0;
      this.block = this.size === largestRead ? (this.free.pop() ?? fresh(largestRead)) : fresh(this.size);
      this.current++;
      this.used = 0;
    }
    return this.used === 0 ? this.block : this.block.subarray(this.used);
  }

  taken(count: number): Uint8Array {
    const chunk = this.block.subarray(this.used, this.used + count);
    if (this.used + count === this.block.length && this.size < largestRead) {
      this.size = Math.min(this.size * 4, largestRead);
    }
    this.used += count;
    return chunk;
  }

  recycle(before: number): void {
    while (this.lent[0] && this.lent[0].number < before) {
      const { block } = this.lent.shift() as { block: Buffer };
      if (this.free.length < mostFree) this.free.push(block);
    }
  }
}

function fresh(size: number): Buffer {
  return size <= firstRead ? Buffer.allocUnsafe(size) : Buffer.allocUnsafeSlow(size);
}
