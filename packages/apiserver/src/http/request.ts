import type { IncomingMessage } from "node:http";
import { DsecError, randomBase32 } from "@dsec/api";

const requestIdPattern = /^[A-Za-z0-9._-]{1,64}$/;

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

/** Throws UNAUTHENTICATED where there is no key. */
export function bearerOf(request: IncomingMessage): string {
  const value = request.headers.authorization;
  if (value === undefined)
    throw new DsecError("UNAUTHENTICATED", "the call has no key: send `Authorization: Bearer KEY`");
  const space = value.indexOf(" ");
  if (space < 0 || value.slice(0, space).toLowerCase() !== "bearer") {
    throw new DsecError("UNAUTHENTICATED", "the Authorization header is not `Bearer KEY`");
  }
  return value.slice(space + 1).trim();
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
