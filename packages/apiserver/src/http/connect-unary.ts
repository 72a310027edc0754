// The apiserver's own methods: unary Connect calls, JSON and binary.

import type { IncomingMessage, ServerResponse } from "node:http";
import { gunzip } from "node:zlib";
import {
  create,
  type DescMessage,
  type DescMethodUnary,
  type DescService,
  fromBinary,
  fromJsonString,
  type MessageInitShape,
  type MessageShape,
  toBinary,
  toJsonString,
} from "@bufbuild/protobuf";
import { DsecError } from "@dsec/api";
import type { Call } from "../call.ts";
import { contentTypeOf, readBody } from "./request.ts";

const maxMessageBytes = 8 * 1024 * 1024;

/** Bytes of an answer that need no encoding for binary callers. */
export class EncodedReply {
  readonly bytes: Uint8Array;
  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
  }
}

type UnaryMethod<I extends DescMessage, O extends DescMessage> = DescMethodUnary<I, O>;

export interface OwnMethod {
  readonly method: UnaryMethod<DescMessage, DescMessage>;
  readonly run: (request: never, call: Call) => Promise<unknown>;
}

type Handler<M> =
  M extends DescMethodUnary<infer I, infer O>
    ? (request: MessageShape<I>, call: Call) => Promise<MessageInitShape<O> | EncodedReply>
    : never;

export type Handlers<S extends DescService> = { [K in keyof S["method"]]?: Handler<S["method"][K]> };

/** Enters the handlers under "package.Service/Method". */
export function addService<S extends DescService>(
  table: Map<string, OwnMethod>,
  service: S,
  handlers: Handlers<S>,
): void {
  for (const [localName, run] of Object.entries(handlers)) {
    const method = service.method[localName] as UnaryMethod<DescMessage, DescMessage>;
    table.set(`${service.typeName}/${method.name}`, { method, run: run as OwnMethod["run"] });
  }
}

/** Reads the call, runs it and answers. Rejects with what is to be answered as an error. */
export async function serveUnary(
  own: OwnMethod,
  request: IncomingMessage,
  response: ServerResponse,
  call: Call,
): Promise<void> {
  const contentType = contentTypeOf(request);
  if (request.method !== "POST")
    throw new DsecError("NO_SUCH_METHOD", `${call.method} is called by POST, not ${request.method}`);
  const json = contentType === "application/json";
  if (!json && contentType !== "application/proto") {
    throw new DsecError("INVALID_ARGUMENT", "the content type is neither application/json nor application/proto");
  }
  const message = decode(own.method, json, await plainBody(request));
  call.limitTo(timeoutOf(request));
  const reply = await call.untilDeadline(own.run(message as never, call));
  const body = encode(own.method, json, reply);
  response.writeHead(200, {
    "content-type": contentType,
    "content-length": body.length,
    "x-request-id": call.requestId,
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

function decode(method: UnaryMethod<DescMessage, DescMessage>, json: boolean, body: Buffer) {
  try {
    if (!json) return fromBinary(method.input, body);
    return body.length === 0 ? create(method.input) : fromJsonString(method.input, body.toString("utf8"));
  } catch (error) {
    const said = error instanceof Error ? error.message : String(error);
    const form = json ? "JSON" : "binary form";
    throw new DsecError(
      "INVALID_ARGUMENT",
      `the message is not a ${method.input.name} in ${form}: ${said.slice(0, 200)}`,
    );
  }
}

function encode(method: UnaryMethod<DescMessage, DescMessage>, json: boolean, reply: unknown): Uint8Array {
  if (reply instanceof EncodedReply) {
    return json ? Buffer.from(toJsonString(method.output, fromBinary(method.output, reply.bytes))) : reply.bytes;
  }
  const message = create(method.output, reply as MessageInitShape<DescMessage>);
  return json ? Buffer.from(toJsonString(method.output, message)) : toBinary(method.output, message);
}

/** Connect's timeout header in milliseconds, or undefined. */
function timeoutOf(request: IncomingMessage): number | undefined {
  const value = request.headers["connect-timeout-ms"];
  if (value === undefined) return undefined;
  if (typeof value !== "string" || !/^[0-9]{1,10}$/.test(value)) {
    throw new DsecError("INVALID_ARGUMENT", "connect-timeout-ms is not a number of milliseconds");
  }
  return Number(value);
}
