// Errors and small answers of plain HTTP calls.
import type { ServerResponse } from "node:http";
import { DsecError } from "@dsec/api";
import { sendError as sendAs } from "@dsec/rpc";

/** Answers with the error; where the answer has begun already, cuts it so that nobody takes it for whole. */
export function sendError(res: ServerResponse, cause: unknown, contentType = ""): void {
  sendAs(res, contentType, DsecError.from(cause), String(res.getHeader("x-request-id") ?? ""));
}

export function sendJson(res: ServerResponse, value: unknown): void {
  const body = JSON.stringify(value);
  res.writeHead(200, { "content-type": "application/json", "content-length": Buffer.byteLength(body) });
  res.end(body);
}
