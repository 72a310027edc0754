// Output frames of a command: u64 offset, u64 bytes dropped just before it, then the bytes.
import { type Frame, frameKind, outputHeaderSize, ProtocolError } from "../wire/frames.ts";

export interface Output {
  readonly stream: "stdout" | "stderr";
  /** Offset of the first byte, in the stream. */
  readonly offset: number;
  /** Bytes just before the offset that are no longer kept. */
  readonly dropped: number;
  readonly length: number;
  readonly parts: readonly Uint8Array[];
}

/** Reads the frames of one attached command and checks that offsets follow each other. */
export class OutputReader {
  private readonly next: { stdout: number | undefined; stderr: number | undefined } = {
    stdout: undefined,
    stderr: undefined,
  };

  read(frame: Frame): Output {
    if (frame.length < outputHeaderSize) throw new ProtocolError("an output frame is too short");
    const parts = [...frame.parts];
    const header = takeHeader(parts);
    const offset = safe(header.readBigUInt64BE(0));
    const dropped = safe(header.readBigUInt64BE(8));
    const stream = frame.kind === frameKind.stderr ? "stderr" : "stdout";
    const expected = this.next[stream];
    if (dropped > offset || (expected !== undefined && offset !== expected + dropped)) {
      throw new ProtocolError(`output at ${offset} (${dropped} dropped) does not follow ${expected ?? 0}`);
    }
    const length = frame.length - outputHeaderSize;
    this.next[stream] = offset + length;
    return { stream, offset, dropped, length, parts };
  }
}

/** Takes 16 bytes off the front of the pieces. */
function takeHeader(parts: Uint8Array[]): Buffer {
  const first = parts[0] as Uint8Array;
  if (first.length >= outputHeaderSize) {
    if (first.length === outputHeaderSize) parts.shift();
    else parts[0] = first.subarray(outputHeaderSize);
    return Buffer.from(first.buffer, first.byteOffset, outputHeaderSize);
  }
  const header = Buffer.allocUnsafe(outputHeaderSize);
  let at = 0;
  while (at < outputHeaderSize) {
    const part = parts[0] as Uint8Array;
    const take = Math.min(part.length, outputHeaderSize - at);
    header.set(part.subarray(0, take), at);
    at += take;
    if (take === part.length) parts.shift();
    else parts[0] = part.subarray(take);
  }
  return header;
}

function safe(value: bigint): number {
  if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw new ProtocolError(`the offset ${value} is beyond any output`);
  return Number(value);
}
