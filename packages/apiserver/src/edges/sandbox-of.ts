// Which sandbox a call is about, without decoding it: header, path, or field 1 of a small body.
import { DsecError } from "@dsec/api";
import { isStreaming } from "@dsec/rpc";

/** Bodies are read whole only to find the ID, and then passed on as they came. */
export const maxPeekedBytes = 4 * 1024 * 1024;

const pathPattern = /^\/v1\/sandboxes\/([^/?]{1,64})(?:[/?]|$)/;

/** The ID in "/v1/sandboxes/ID/…", or undefined. */
export function sandboxInPath(url: string): string | undefined {
  return pathPattern.exec(url)?.[1];
}

/** The `sandbox_id` in a Connect body. Throws INVALID_ARGUMENT where there is none. */
export function sandboxInBody(contentType: string, body: Buffer): string {
  const message = isStreaming(contentType) ? firstEnvelope(body) : body;
  const id = contentType.endsWith("json") ? idInJson(message) : idInBinary(message);
  if (id === undefined || id === "") {
    throw new DsecError("INVALID_ARGUMENT", "the call names no sandbox: set sandbox_id");
  }
  return id;
}

function firstEnvelope(body: Buffer): Buffer {
  if (body.length < 5 || body.length < 5 + body.readUInt32BE(1)) {
    throw new DsecError("INVALID_ARGUMENT", "the stream's first message is cut short");
  }
  if ((body[0] as number) & 1) {
    throw new DsecError("NOT_SUPPORTED", "a compressed message needs the header x-dsec-sandbox");
  }
  return body.subarray(5, 5 + body.readUInt32BE(1));
}

function idInJson(message: Buffer): string | undefined {
  let json: unknown;
  try {
    json = JSON.parse(message.toString("utf8"));
  } catch {
    throw new DsecError("INVALID_ARGUMENT", "the message is not JSON");
  }
  if (typeof json !== "object" || json === null)
    throw new DsecError("INVALID_ARGUMENT", "the message is not a JSON object");
  const { sandboxId, sandbox_id } = json as Record<string, unknown>;
  const id = sandboxId ?? sandbox_id;
  return typeof id === "string" ? id : undefined;
}

/** Field 1 as text. It is the first field in what encoders write; others before it are stepped over. */
function idInBinary(message: Buffer): string | undefined {
  let at = 0;
  const varint = (): number => {
    let value = 0;
    for (let scale = 1; ; scale *= 128) {
      const byte = message[at++];
      if (byte === undefined || scale > 2 ** 63)
        throw new DsecError("INVALID_ARGUMENT", "the message is not in binary form");
      value += (byte & 127) * scale;
      if (byte < 128) return value;
    }
  };
  while (at < message.length) {
    const tag = varint();
    const field = Math.floor(tag / 8);
    const wire = tag % 8;
    if (wire === 2) {
      const length = varint();
      if (at + length > message.length) throw new DsecError("INVALID_ARGUMENT", "the message is cut short");
      if (field === 1) return message.toString("utf8", at, at + length);
      at += length;
    } else if (wire === 0) varint();
    else if (wire === 1) at += 8;
    else if (wire === 5) at += 4;
    else throw new DsecError("INVALID_ARGUMENT", "the message is not in binary form");
  }
  return undefined;
}
