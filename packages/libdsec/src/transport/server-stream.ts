// Server streams of small messages, one envelope each.
import {
  create,
  type DescMessage,
  type DescMethodServerStreaming,
  fromBinary,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from "@bufbuild/protobuf";
import { ConnectionError, DsecError } from "../errors.ts";
import { envelope } from "../output-stream.ts";
import type { Calls } from "./calls.ts";
import { errorFromJson } from "./wire-error.ts";

const maxMessageBytes = 8 << 20;

export async function* serverStream<I extends DescMessage, O extends DescMessage>(
  calls: Calls,
  method: DescMethodServerStreaming<I, O>,
  init: MessageInitShape<I>,
  options: { sandboxId?: string; signal?: AbortSignal | undefined },
): AsyncGenerator<MessageShape<O>, void, void> {
  const { body, finish } = await calls.http.openLong({
    method: "POST",
    path: `/${method.parent.typeName}/${method.name}`,
    headers: { "content-type": "application/connect+proto", "connect-protocol-version": "1" },
    body: envelope(toBinary(method.input, create(method.input, init))),
    ...options,
  });
  let held: Buffer = Buffer.alloc(0);
  try {
    for await (const part of body) {
      held = held.length > 0 ? Buffer.concat([held, part]) : part;
      while (held.length >= 5) {
        const length = held.readUInt32BE(1);
        if (length > maxMessageBytes)
          throw new DsecError("INTERNAL", `a message of ${length} bytes in a stream of small ones`);
        if (held.length < 5 + length) break;
        const payload = held.subarray(5, 5 + length);
        const last = ((held[0] as number) & 2) !== 0;
        held = held.subarray(5 + length);
        if (!last) yield fromBinary(method.output, payload);
        else {
          const { error } = JSON.parse(payload.toString("utf8"));
          if (error) throw errorFromJson(error, 0);
          return;
        }
      }
    }
    throw new ConnectionError("the stream was cut", true);
  } catch (error) {
    if (error instanceof DsecError) throw error;
    throw new ConnectionError(`the stream broke: ${(error as Error).message}`, true, error);
  } finally {
    finish();
  }
}
