// Unary Connect calls, JSON and binary, straight over Node's HTTP server: Connect's own server costs several times as much.
import type { IncomingMessage, ServerResponse } from "node:http";
import { gunzip } from "node:zlib";
import { fromBinary, toJsonString } from "@bufbuild/protobuf";
import { DsecError } from "@dsec/api";
import { decode, encode } from "./codec.ts";
import type { OwnMethod, RpcContext } from "./methods.ts";
import { contentTypeOf, maxMessageBytes, readBody, requirePost, timeoutOf } from "./request.ts";

/** An answer that need not be encoded for binary callers; large ones in pieces that are sent without being joined. */
export class EncodedReply {
  readonly parts: readonly Uint8Array[];
  readonly length: number;
  constructor(...parts: readonly Uint8Array[]) {
    this.parts = parts;
    this.length = parts.reduce((sum, part) => sum + part.length, 0);
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
  const last = body.parts.length - 1;
  for (const part of body.parts.slice(0, last)) response.write(part);
  response.end(body.parts[last]);
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

function encodeReply<C>({ method }: OwnMethod<C>, json: boolean, reply: unknown): EncodedReply {
  if (!(reply instanceof EncodedReply)) return new EncodedReply(encode(method.output, json, reply));
  if (!json) return reply;
  return new EncodedReply(Buffer.from(toJsonString(method.output, fromBinary(method.output, joined(reply)))));
}

function joined({ parts, length }: EncodedReply): Uint8Array {
  return parts.length === 1 ? (parts[0] as Uint8Array) : Buffer.concat(parts, length);
}
