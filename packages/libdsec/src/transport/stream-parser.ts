// CommandService.Stream, parsed by hand: Connect's 5-byte envelope, then StreamResponse. The bytes of an output chunk are
// handed on as slices of what the socket gave, before the rest of their frame is there: nothing is copied or held back.
import { fromBinary } from "@bufbuild/protobuf";
import { type CommandInfo, type CommandOutcome, DsecError, OutputStream, StreamResponseSchema } from "@dsec/api";
import { errorFromJson } from "./wire-error.ts";

export type CommandEvent =
  | { type: "started"; info: CommandInfo }
  | { type: "output"; stream: "stdout" | "stderr"; offset: number; droppedBytes: number; data: Uint8Array }
  | { type: "ended"; outcome: CommandOutcome };

/** Frames that are not output are small; a longer one is not from a server of ours. */
const maxSmallFrame = 1 << 20;
const maxOutputFrame = 1 << 28;
/** Longest beginning of an output frame: envelope, tag, length, then stream, offset, dropped, data's tag and length. */
const maxPrelude = 5 + 1 + 5 + 11 + 11 + 11 + 6;

export class StreamParser {
  /** The last frame has come and said that all is well. */
  finished = false;
  #held: Buffer = Buffer.alloc(0);
  #stream: "stdout" | "stderr" = "stdout";
  #offset = 0;
  #left = 0;

  /** Events of the next bytes of the body. @throws DsecError as the server sent it; INTERNAL for bytes that are no such stream. */
  push(chunk: Buffer, events: CommandEvent[]): void {
    let at = 0;
    if (this.#left > 0) at = this.#slice(chunk, 0, 0, events);
    let buffer = chunk;
    if (this.#held.length > 0) {
      buffer = Buffer.concat([this.#held, chunk.subarray(at)]);
      this.#held = Buffer.alloc(0);
      at = 0;
    }
    while (at < buffer.length) {
      const next = this.#frame(buffer, at, events);
      if (next < 0) {
        this.#held = buffer.subarray(at);
        return;
      }
      at = next;
    }
  }

  #slice(buffer: Buffer, at: number, droppedBytes: number, events: CommandEvent[]): number {
    const end = Math.min(buffer.length, at + this.#left);
    if (end > at || droppedBytes > 0) {
      events.push({
        type: "output",
        stream: this.#stream,
        offset: this.#offset,
        droppedBytes,
        data: buffer.subarray(at, end),
      });
    }
    this.#offset += end - at;
    this.#left -= end - at;
    return end;
  }

  /** Takes the frame at `at`; gives where the next begins, or -1 when more bytes are needed. */
  #frame(buffer: Buffer, at: number, events: CommandEvent[]): number {
    if (buffer.length - at < 5) return -1;
    const flags = buffer[at] as number;
    const length = buffer.readUInt32BE(at + 1);
    const start = at + 5;
    if ((flags & ~2) !== 0) throw nonsense(`frame flags ${flags}`);
    if (flags === 0 && length > 0) {
      const available = Math.min(buffer.length, start + length);
      if (available - at < Math.min(maxPrelude, length + 5)) return -1;
      const data = this.#prelude(buffer, start, start + length, available, events);
      if (data >= 0) return data;
    }
    if (length > maxSmallFrame) throw nonsense(`a frame of ${length} bytes`);
    if (buffer.length < start + length) return -1;
    const payload = buffer.subarray(start, start + length);
    if (flags === 2) this.#last(payload);
    else this.#message(payload, events);
    return start + length;
  }

  /** An output chunk in the order in which every protobuf writer puts it; -1 where it is something else. */
  #prelude(buffer: Buffer, start: number, end: number, available: number, events: CommandEvent[]): number {
    if (buffer[start] !== 0x12 || end - start > maxOutputFrame) return -1;
    const cursor = { at: start + 1, end: Math.min(end, available) };
    const inner = varint(buffer, cursor);
    if (inner < 0 || cursor.at + inner !== end) return -1;
    let stream = 0;
    let offset = 0;
    let dropped = 0;
    while (cursor.at < cursor.end) {
      const tag = buffer[cursor.at++];
      if (tag === 0x22) {
        const size = varint(buffer, cursor);
        if (size < 0 || cursor.at + size !== end) return -1;
        this.#begin(stream, offset, size);
        return this.#slice(buffer, cursor.at, dropped, events);
      }
      const value = varint(buffer, cursor);
      if (value < 0) return -1;
      if (tag === 0x08) stream = value;
      else if (tag === 0x10) offset = value;
      else if (tag === 0x18) dropped = value;
      else return -1;
    }
    return -1;
  }

  #begin(stream: number, offset: number, size: number): void {
    this.#stream = stream === OutputStream.STDERR ? "stderr" : "stdout";
    this.#offset = offset;
    this.#left = size;
  }

  #message(payload: Uint8Array, events: CommandEvent[]): void {
    const { event } = fromBinary(StreamResponseSchema, payload);
    if (event.case === "started") events.push({ type: "started", info: event.value });
    else if (event.case === "ended") events.push({ type: "ended", outcome: event.value });
    else if (event.case === "output") {
      const { stream, offset, droppedBytes, data } = event.value;
      if (data.length === 0 && droppedBytes === 0n) return;
      events.push({
        type: "output",
        stream: stream === OutputStream.STDERR ? "stderr" : "stdout",
        offset: Number(offset),
        droppedBytes: Number(droppedBytes),
        data,
      });
    }
  }

  #last(payload: Buffer): void {
    let value: { error?: unknown } = {};
    try {
      value = JSON.parse(payload.toString("utf8"));
    } catch {
      throw nonsense("a last frame that is no JSON");
    }
    if (value.error) throw errorFromJson(value.error, 0);
    this.finished = true;
  }
}

/** A varint up to 2^53 at the cursor, which moves behind it; -1 where it is cut or larger. */
function varint(buffer: Buffer, cursor: { at: number; end: number }): number {
  let value = 0;
  let scale = 1;
  for (let i = 0; i < 8; i++) {
    if (cursor.at >= cursor.end) return -1;
    const byte = buffer[cursor.at++] as number;
    value += (byte & 127) * scale;
    if (byte < 128) return value <= Number.MAX_SAFE_INTEGER ? value : -1;
    scale *= 128;
  }
  return -1;
}

function nonsense(what: string): DsecError {
  return new DsecError("INTERNAL", `the answer is not one of the Stream method: ${what}`);
}
