// Connect's streaming envelopes for StreamResponse, written by hand: output goes from aether's socket to the
// caller's without a copy.
import { create, fromBinary, fromJsonString, toBinary, toJsonString } from "@bufbuild/protobuf";
import {
  DsecError,
  OutputStream,
  type StreamRequest,
  StreamRequestSchema,
  type StreamResponse,
  StreamResponseSchema,
} from "@dsec/api";
import { envelope, openEnvelope } from "@dsec/rpc";
import type { Output } from "../aether/output.ts";

const headerSize = 5;
/** Envelope, tags and numbers before the data of a chunk are at most this many bytes. */
const largestPrefix = 64;

/** The one message of a streaming request's body. */
export function decodeRequest(body: Buffer, binary: boolean): StreamRequest {
  const message = openEnvelope(body);
  try {
    return binary
      ? fromBinary(StreamRequestSchema, message)
      : fromJsonString(StreamRequestSchema, message.toString("utf8"));
  } catch (error) {
    throw new DsecError("INVALID_ARGUMENT", `the message cannot be decoded: ${(error as Error).message}`);
  }
}

export function encodeMessage(event: StreamResponse["event"], binary: boolean): Buffer {
  const message = create(StreamResponseSchema, { event });
  return envelope(
    binary ? toBinary(StreamResponseSchema, message) : Buffer.from(toJsonString(StreamResponseSchema, message)),
  );
}

/** What stands before the bytes of a chunk: envelope and StreamResponse{output} up to its data. */
export function outputPrefix(output: Output): Buffer {
  const numbers = Buffer.allocUnsafe(largestPrefix);
  let at = 0;
  numbers[at++] = 0x08;
  numbers[at++] = output.stream === "stdout" ? OutputStream.STDOUT : OutputStream.STDERR;
  if (output.offset > 0) {
    numbers[at++] = 0x10;
    at = writeVarint(numbers, at, output.offset);
  }
  if (output.dropped > 0) {
    numbers[at++] = 0x18;
    at = writeVarint(numbers, at, output.dropped);
  }
  numbers[at++] = 0x22;
  at = writeVarint(numbers, at, output.length);
  const chunk = at + output.length;
  const prefix = Buffer.allocUnsafe(largestPrefix);
  let end = headerSize;
  prefix[end++] = 0x12;
  end = writeVarint(prefix, end, chunk);
  prefix[0] = 0;
  prefix.writeUInt32BE(end - headerSize + chunk, 1);
  numbers.copy(prefix, end, 0, at);
  return prefix.subarray(0, end + at);
}

function writeVarint(target: Buffer, start: number, value: number): number {
  let at = start;
  let rest = value;
  while (rest > 0x7f) {
    target[at++] = (rest % 0x80) | 0x80;
    rest = Math.floor(rest / 0x80);
  }
  target[at++] = rest;
  return at;
}
