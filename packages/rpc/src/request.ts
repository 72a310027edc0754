import type { IncomingMessage } from "node:http";
import type { DescMethod } from "@bufbuild/protobuf";
import { DsecError, randomBase32 } from "@dsec/api";

/** A message of one call, as sent and unpacked. */
export const maxMessageBytes = 8 * 1024 * 1024;
const requestIdPattern = /^[A-Za-z0-9_.:-]{1,128}$/;

/** The caller's request ID where it is usable, else a new one. */
export function requestIdOf(request: IncomingMessage): string {
  const given = request.headers["x-request-id"];
  return typeof given === "string" && requestIdPattern.test(given) ? given : randomBase32(16);
}

/** The content type without parameters, lower case. */
export function contentTypeOf(request: IncomingMessage): string {
  const value = request.headers["content-type"] ?? "";
  const end = value.indexOf(";");
  return (end < 0 ? value : value.slice(0, end)).trim().toLowerCase();
}

/** The whole body. Rejects with TOO_LARGE beyond `limit` bytes, CANCELLED when the caller leaves. */
export function readBody(request: IncomingMessage, limit: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let size = 0;
    const done = (error?: DsecError) => {
      request.off("data", onData).off("end", onEnd).off("close", onClose).off("error", onClose);
      if (error === undefined) resolve(chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks, size));
      else reject(error);
    };
    const tooLarge = () => done(new DsecError("TOO_LARGE", `the message is larger than ${limit} bytes`));
    const onData = (chunk: Buffer) => {
      size += chunk.length;
      if (size > limit) tooLarge();
      else chunks.push(chunk);
    };
    const onEnd = () => done();
    const onClose = () => done(new DsecError("CANCELLED", "the request was cut before its end"));
    const declared = Number(request.headers["content-length"] ?? 0);
    if (declared > limit) {
      tooLarge();
      return;
    }
    request.on("data", onData).on("end", onEnd).on("close", onClose).on("error", onClose);
  });
}

/** Throws NO_SUCH_METHOD. */
export function requirePost(request: IncomingMessage, method: DescMethod): void {
  if (request.method === "POST") return;
  const name = `${method.parent.typeName}/${method.name}`;
  throw new DsecError("NO_SUCH_METHOD", `${name} is called by POST, not ${request.method}`);
}

/** Connect's timeout header in milliseconds, or undefined. */
export function timeoutOf(request: IncomingMessage): number | undefined {
  const value = request.headers["connect-timeout-ms"];
  if (value === undefined) return undefined;
  if (typeof value !== "string" || !/^[0-9]{1,10}$/.test(value)) {
    throw new DsecError("INVALID_ARGUMENT", "connect-timeout-ms is not a number of milliseconds");
  }
  return Number(value);
}
