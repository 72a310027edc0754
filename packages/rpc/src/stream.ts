// Server streams of small messages, one envelope each, written as fast as their reader takes them.
import type { IncomingMessage, ServerResponse } from "node:http";
import { DsecError } from "@dsec/api";
import { decode, encode } from "./codec.ts";
import { encodeEnd, envelope, openEnvelope } from "./envelope.ts";
import { isStreaming } from "./errors.ts";
import type { OwnStream, RpcContext } from "./methods.ts";
import { contentTypeOf, maxMessageBytes, readBody, requirePost, timeoutOf } from "./request.ts";

/** Answers the call; failures are end-of-stream errors, as Connect wants it. `asError` says what a caller may know. */
export async function serveStream<C extends RpcContext>(
  own: OwnStream<C>,
  request: IncomingMessage,
  response: ServerResponse,
  context: C,
  asError: (error: unknown) => DsecError,
): Promise<void> {
  const contentType = contentTypeOf(request);
  requirePost(request, own.method);
  if (!isStreaming(contentType)) {
    throw new DsecError("INVALID_ARGUMENT", "the content type is neither application/connect+json nor +proto");
  }
  const json = contentType.endsWith("json");
  const message = decode(own.method.input, json, openEnvelope(await readBody(request, maxMessageBytes)));
  context.limitTo(timeoutOf(request));
  response.writeHead(200, { "content-type": contentType, "x-request-id": context.requestId });
  response.flushHeaders();
  let failure: DsecError | undefined;
  try {
    for await (const reply of own.run(message as never, context)) {
      if (!response.write(envelope(encode(own.method.output, json, reply)))) await drained(response);
      if (response.destroyed) return;
    }
  } catch (error) {
    failure = asError(error);
  }
  response.end(encodeEnd(failure));
}

function drained(response: ServerResponse): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      response.off("drain", done).off("close", done);
      resolve();
    };
    response.once("drain", done).once("close", done);
  });
}
