// Connect's streaming envelopes: u8 flags, u32 BE length, message; the last has flag 2 and JSON.
import { endStreamToJson } from "@connectrpc/connect/protocol-connect";
import { DsecError } from "@dsec/api";

const endFlag = 2;
const headerBytes = 5;

export function envelope(message: Uint8Array, flags = 0): Buffer {
  const whole = Buffer.allocUnsafe(headerBytes + message.length);
  whole[0] = flags;
  whole.writeUInt32BE(message.length, 1);
  whole.set(message, headerBytes);
  return whole;
}

/** The last envelope of an answer. */
export function encodeEnd(error: DsecError | undefined): Buffer {
  return envelope(Buffer.from(JSON.stringify(endStreamToJson(new Headers(), error?.toConnect(), undefined))), endFlag);
}

/** The one message of a streaming request's body. Throws INVALID_ARGUMENT. */
export function openEnvelope(body: Buffer): Buffer {
  if (body.length < headerBytes || body.readUInt32BE(1) !== body.length - headerBytes) {
    throw new DsecError("INVALID_ARGUMENT", "the body is not one enveloped message");
  }
  if (body[0] !== 0) throw new DsecError("INVALID_ARGUMENT", "the message is compressed; compression is off here");
  return body.subarray(headerBytes);
}
