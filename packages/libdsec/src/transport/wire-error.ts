// Errors as they come over the wire: Connect's JSON, with our ErrorInfo as a detail.
import { fromBinary } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { DsecError, ErrorInfoSchema } from "@dsec/api";

interface WireError {
  code?: unknown;
  message?: unknown;
  details?: unknown;
}

/** @param status HTTP status, or 0 for the last frame of a stream. */
export function errorFromWire(body: Uint8Array, status: number, retryAfter?: string): DsecError {
  let value: unknown;
  try {
    value = JSON.parse(Buffer.from(body.buffer, body.byteOffset, body.byteLength).toString("utf8"));
  } catch {
    value = undefined;
  }
  return errorFromJson(value, status, retryAfter);
}

export function errorFromJson(value: unknown, status: number, retryAfter?: string): DsecError {
  const { code, message, details } = (typeof value === "object" && value !== null ? value : {}) as WireError;
  for (const detail of Array.isArray(details) ? details : []) {
    if (detail?.type !== "dsec.v1.ErrorInfo" || typeof detail.value !== "string") continue;
    try {
      return DsecError.fromInfo(fromBinary(ErrorInfoSchema, Buffer.from(detail.value, "base64")));
    } catch {
      // A detail that cannot be read leaves code and message.
    }
  }
  const text =
    typeof message === "string" && message !== "" ? message : `the server answered with HTTP status ${status}`;
  const connect = new ConnectError(text, codeFromName(code) ?? codeFromStatus(status));
  const error = DsecError.from(connect);
  const seconds = Number(retryAfter);
  return seconds > 0 ? new DsecError(error.reason, error.message, { retryAfterMs: seconds * 1000 }) : error;
}

function codeFromName(name: unknown): Code | undefined {
  if (typeof name !== "string") return undefined;
  const camel = name.replace(/(^|_)([a-z])/g, (_, __, letter: string) => letter.toUpperCase());
  const code = Code[camel as keyof typeof Code];
  return typeof code === "number" ? code : undefined;
}

function codeFromStatus(status: number): Code {
  if (status === 400) return Code.InvalidArgument;
  if (status === 401) return Code.Unauthenticated;
  if (status === 403) return Code.PermissionDenied;
  if (status === 404) return Code.Unimplemented;
  if (status === 429) return Code.ResourceExhausted;
  if (status === 502 || status === 503 || status === 504) return Code.Unavailable;
  return Code.Internal;
}
