// Messages in either of Connect's forms.
import {
  create,
  type DescMessage,
  fromBinary,
  fromJsonString,
  type MessageInitShape,
  type MessageShape,
  toBinary,
  toJsonString,
} from "@bufbuild/protobuf";
import { DsecError } from "@dsec/api";

/** Throws INVALID_ARGUMENT. */
export function decode<I extends DescMessage>(schema: I, json: boolean, body: Buffer): MessageShape<I> {
  try {
    if (!json) return fromBinary(schema, body);
    return body.length === 0 ? create(schema) : fromJsonString(schema, body.toString("utf8"));
  } catch (error) {
    const said = error instanceof Error ? error.message : String(error);
    const form = json ? "JSON" : "binary form";
    throw new DsecError("INVALID_ARGUMENT", `the message is not a ${schema.name} in ${form}: ${said.slice(0, 200)}`);
  }
}

export function encode(schema: DescMessage, json: boolean, reply: unknown): Uint8Array {
  const message = create(schema, reply as MessageInitShape<DescMessage>);
  return json ? Buffer.from(toJsonString(schema, message)) : toBinary(schema, message);
}
