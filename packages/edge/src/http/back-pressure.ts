// A reader that is slow slows its source; one that takes nothing for 30 s is cut.
import type { ServerResponse } from "node:http";
import type { Writable } from "node:stream";

export const slowReaderMs = 30_000;

export interface Source {
  pause(): void;
  resume(): void;
}

export class BackPressure {
  private readonly sink: Writable;
  private readonly source: Source;
  private readonly onSlow: () => void;
  private timer: NodeJS.Timeout | undefined;
  private readonly drained = () => {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.source.resume();
  };

  constructor(sink: Writable, source: Source, onSlow: () => void) {
    this.sink = sink;
    this.source = source;
    this.onSlow = onSlow;
    sink.on("drain", this.drained);
  }

  /** After each write: stops the source while the reader is behind. */
  check(): void {
    if (this.timer || !this.sink.writableNeedDrain) return;
    this.source.pause();
    this.timer = setTimeout(this.onSlow, slowReaderMs);
  }

  end(): void {
    clearTimeout(this.timer);
    this.sink.off("drain", this.drained);
  }
}

/** Writes the pieces as one chunk of the body, without a copy; `onFlushed` once the kernel has them. */
export function passOn(
  res: ServerResponse,
  first: Uint8Array | undefined,
  parts: readonly Uint8Array[],
  onFlushed: () => void,
): void {
  const { socket } = res;
  socket?.cork();
  res.cork();
  if (first) res.write(first);
  parts.forEach((part, i) => {
    res.write(part, i === parts.length - 1 ? onFlushed : undefined);
  });
  res.uncork();
  socket?.uncork();
}
