// Frames between edge, aether and hostd: u32 BE length of the payload, u8 kind, 3 zero bytes, payload.

/** Largest payload of a frame, in bytes: 1 MiB of contents and a little around it. */
export const maxPayload = 1024 * 1024 + 64;
export const headerSize = 8;
/** Offset and dropped count in front of a command's output. */
export const outputHeaderSize = 16;

export const frameKind = { message: 0, stdout: 1, stderr: 2 } as const;

/** The peer broke the rules of the wire; nothing that it sends is believed any more. */
export class ProtocolError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "ProtocolError";
  }
}

export interface Frame {
  readonly kind: number;
  /** Bytes of the payload. */
  readonly length: number;
  /** The payload in pieces, in order; views of the read buffers, not copies. */
  readonly parts: readonly Uint8Array[];
}

/** The payload as one piece; copies only where it came in several. */
export function joinParts(parts: readonly Uint8Array[], length: number): Uint8Array {
  if (parts.length === 1) return parts[0] as Uint8Array;
  const whole = Buffer.allocUnsafe(length);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** @param payload at most `maxPayload` bytes */
export function encodeFrame(kind: number, payload: Uint8Array): Buffer {
  const frame = Buffer.allocUnsafe(headerSize + payload.length);
  writeHeader(frame, kind, payload.length);
  frame.set(payload, headerSize);
  return frame;
}

/** The header alone, for contents that are sent without a copy. */
export function frameHeader(kind: number, length: number): Buffer {
  const header = Buffer.allocUnsafe(headerSize);
  writeHeader(header, kind, length);
  return header;
}

function writeHeader(target: Buffer, kind: number, length: number): void {
  if (length > maxPayload) throw new RangeError(`a frame of ${length} bytes is larger than ${maxPayload}`);
  target.writeUInt32BE(length, 0);
  target.writeUInt32BE(kind << 24, 4);
}

/** Cuts a stream of bytes into frames. Lengths are checked before anything is kept. */
export class FrameReader {
  private readonly header = Buffer.allocUnsafe(headerSize);
  private headerFill = 0;
  private kind = 0;
  private length = 0;
  private missing = 0;
  private parts: Uint8Array[] = [];
  private readonly maxKind: number;

  /** @param maxKind the highest kind of frame that the peer may send */
  constructor(maxKind: number) {
    this.maxKind = maxKind;
  }

  /** True inside a frame: an end of the stream here is a cut. */
  get partial(): boolean {
    return this.headerFill > 0;
  }

  /** Calls `onFrame` for each whole frame; throws ProtocolError on a lie about kind or length. Keeps views of `chunk`. */
  push(chunk: Uint8Array, onFrame: (frame: Frame) => void): void {
    let at = 0;
    while (at < chunk.length) {
      if (this.headerFill < headerSize) {
        const take = Math.min(headerSize - this.headerFill, chunk.length - at);
        this.header.set(chunk.subarray(at, at + take), this.headerFill);
        this.headerFill += take;
        at += take;
        if (this.headerFill < headerSize) return;
        this.readHeader();
      }
      const take = Math.min(this.missing, chunk.length - at);
      if (take > 0) {
        this.parts.push(chunk.subarray(at, at + take));
        this.missing -= take;
        at += take;
      }
      if (this.missing === 0) {
        const frame = { kind: this.kind, length: this.length, parts: this.parts };
        this.parts = [];
        this.headerFill = 0;
        onFrame(frame);
      }
    }
  }

  private readHeader(): void {
    const length = this.header.readUInt32BE(0);
    const rest = this.header.readUInt32BE(4);
    if (length > maxPayload)
      throw new ProtocolError(`a frame says it has ${length} bytes; at most ${maxPayload} may be`);
    if ((rest & 0xffffff) !== 0) throw new ProtocolError("a frame's reserved bytes are not zero");
    const kind = rest >>> 24;
    if (kind > this.maxKind) throw new ProtocolError(`a frame has the unknown kind ${kind}`);
    this.kind = kind;
    this.length = length;
    this.missing = length;
  }
}
