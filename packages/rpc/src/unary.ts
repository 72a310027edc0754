// Unary Connect calls, JSON and binary, straight over Node's HTTP server: Connect's own server costs several times as much.
import type { IncomingMessage, ServerResponse } from "node:http";
import { gunzip } from "node:zlib";
import { fromBinary, toJsonString } from "@bufbuild/protobuf";
import { DsecError } from "@dsec/api";
import { decode, encode } from "./codec.ts";
import type { OwnMethod, RpcContext } from "./methods.ts";
import { contentTypeOf, maxMessageBytes, readBody, requirePost, timeoutOf } from "./request.ts";

/** Bytes of an answer that need no encoding for binary callers. */
export class EncodedReply {
  readonly bytes: Uint8Array;
  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
  }
}

/** Reads the call, runs it and answers. Rejects with what is to be answered as an error. */
export async function serveUnary<C extends RpcContext>(
  own: OwnMethod<C>,
  request: IncomingMessage,
  response: ServerResponse,
  context: C,
): Promise<void> {
  const contentType = contentTypeOf(request);
  requirePost(request, own.method);
  const json = contentType === "application/json";
  if (!json && contentType !== "application/proto") {
    throw new DsecError("INVALID_ARGUMENT", "the content type is neither application/json nor application/proto");
  }
  const message = decode(own.method.input, json, await plainBody(request));
  context.limitTo(timeoutOf(request));
  const ran = own.run(message as never, context);
  const reply = ran instanceof Promise ? await context.untilDeadline(ran) : ran;
  const body = encodeReply(own, json, reply);
  response.writeHead(200, {
    "content-type": contentType,
    "content-length": body.length,
    "x-request-id": context.requestId,
  });
  response.end(body);
}

async function plainBody(request: IncomingMessage): Promise<Buffer> {
  const body = await readBody(request, maxMessageBytes);
  const encoding = request.headers["content-encoding"] ?? "identity";
  if (encoding === "identity") return body;
  if (encoding !== "gzip") throw new DsecError("NOT_SUPPORTED", "the body's encoding is neither identity nor gzip");
  return new Promise((resolve, reject) => {
    gunzip(body, { maxOutputLength: maxMessageBytes }, (error, plain) => {
      if (error === null) resolve(plain);
      else if ("code" in error && error.code === "ERR_BUFFER_TOO_LARGE") {
        reject(new DsecError("TOO_LARGE", `the message is larger than ${maxMessageBytes} bytes when unpacked`));
      } else reject(new DsecError("INVALID_ARGUMENT", "the body is not gzip, though its encoding says so"));
    });
  });
}

function encodeReply<C>({ method }: OwnMethod<C>, json: boolean, reply: unknown): Uint8Array {
  if (!(reply instanceof EncodedReply)) return encode(method.output, json, reply);
  return json ? Buffer.from(toJsonString(method.output, fromBinary(method.output, reply.bytes))) : reply.bytes;
}
