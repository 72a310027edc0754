// Failures as HTTP answers, in the form that Connect clients read.
import type { ServerResponse } from "node:http";
import { ConnectError } from "@connectrpc/connect";
import { codeToHttpStatus, errorToJson } from "@connectrpc/connect/protocol-connect";
import { DsecError } from "@dsec/api";
import { encodeEnd } from "./envelope.ts";

/** As much of a logger as is needed here. */
export interface ErrorLog {
  error(details: object, message: string): void;
}

/** What a caller may know: a DsecError as it is, anything else INTERNAL with the request's ID alone. */
export function asCallerError(error: unknown, requestId: string, log: ErrorLog): DsecError {
  if (error instanceof DsecError) return error;
  if (error instanceof ConnectError) return DsecError.from(error);
  log.error({ err: error, requestId }, "a call failed on a fault of ours");
  return new DsecError("INTERNAL", `the server failed; request ID ${requestId}`, {
    metadata: { request_id: requestId },
  });
}

export function httpStatusOf(error: DsecError): number {
  return codeToHttpStatus(error.code);
}

function errorJson(error: DsecError): string {
  return JSON.stringify(errorToJson(error.toConnect(), undefined));
}

function headersOf(error: DsecError, requestId: string): Record<string, string> {
  const headers: Record<string, string> = { "x-request-id": requestId };
  if (error.retryAfterMs > 0) headers["retry-after"] = String(Math.ceil(error.retryAfterMs / 1000));
  return headers;
}

/** Answers the call with the error, as its content type wants it. With an answer under way it cuts the connection. */
export function sendError(response: ServerResponse, contentType: string, error: DsecError, requestId: string): void {
  if (response.headersSent) {
    response.destroy();
    return;
  }
  const headers = headersOf(error, requestId);
  if (isStreaming(contentType)) {
    const body = encodeEnd(error);
    response.writeHead(200, { ...headers, "content-type": contentType, "content-length": body.length });
    response.end(body);
    return;
  }
  const body = Buffer.from(errorJson(error));
  response.writeHead(httpStatusOf(error), {
    ...headers,
    "content-type": "application/json",
    "content-length": body.length,
  });
  response.end(body);
}

/** The whole answer as bytes, for a connection that has no ServerResponse (upgrades, requests that do not parse). */
export function rawError(error: DsecError, requestId: string, status = httpStatusOf(error)): string {
  const body = errorJson(error);
  const lines = Object.entries(headersOf(error, requestId)).map(([name, value]) => `${name}: ${value}\r\n`);
  return (
    `HTTP/1.1 ${status} Error\r\n${lines.join("")}content-type: application/json\r\n` +
    `content-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`
  );
}

export function isStreaming(contentType: string): boolean {
  return contentType === "application/connect+proto" || contentType === "application/connect+json";
}
