// Errors as answers of HTTP: the same JSON as Connect's unary errors.
import type { ServerResponse } from "node:http";
import { codeToHttpStatus, errorToJson } from "@connectrpc/connect/protocol-connect";
import { DsecError } from "@dsec/api";

export function errorBody(error: DsecError): string {
  return JSON.stringify(errorToJson(error.toConnect(), undefined));
}

/** Answers with the error; where the answer has begun already, cuts it so that nobody takes it for whole. */
export function sendError(res: ServerResponse, cause: unknown): void {
  if (res.headersSent) {
    res.destroy();
    return;
  }
  const error = DsecError.from(cause);
  const body = errorBody(error);
  res.statusCode = codeToHttpStatus(error.code);
  res.setHeader("content-type", "application/json");
  res.setHeader("content-length", Buffer.byteLength(body));
  if (error.retryAfterMs > 0) res.setHeader("retry-after", Math.ceil(error.retryAfterMs / 1000));
  res.end(body);
}

export function sendJson(res: ServerResponse, value: unknown): void {
  const body = JSON.stringify(value);
  res.writeHead(200, { "content-type": "application/json", "content-length": Buffer.byteLength(body) });
  res.end(body);
}
