// Plain HTTP bodies: sent from any source with back-pressure, read as they come.
import type { ClientRequest, OutgoingHttpHeaders } from "node:http";
import { ConnectionError, DsecError } from "../errors.ts";
import type { Calls } from "./calls.ts";
import { retrying } from "./retry.ts";

export type BodySource = string | Uint8Array | AsyncIterable<Uint8Array | string> | Iterable<Uint8Array | string>;

export interface BodyCall {
  method: "GET" | "PUT" | "POST";
  path: string;
  sandboxId?: string | undefined;
  signal?: AbortSignal | undefined;
  headers?: OutgoingHttpHeaders;
}

/** Sends a body and gives the whole answer. Bytes are sent again after an interruption, a stream is not. */
export async function sendBody(calls: Calls, call: BodyCall, source: BodySource): Promise<Uint8Array> {
  const headers = { "content-type": "application/octet-stream", ...call.headers };
  if (typeof source === "string" || source instanceof Uint8Array) {
    const body = typeof source === "string" ? Buffer.from(source) : source;
    const attempt = () => calls.http.exchange({ ...call, headers, body, long: true });
    return retrying(attempt, { withinMs: calls.retryMs, harmless: true, signal: call.signal });
  }
  let failed: unknown;
  try {
    const { response, finish } = await calls.http.open({
      ...call,
      headers,
      long: true,
      write: (request) => {
        pump(source, request).catch((error) => {
          failed = error;
          // The server must see a cut body, not a short one that looks whole.
          request.destroy(error instanceof Error ? error : new Error(String(error)));
        });
      },
    });
    const parts: Buffer[] = [];
    for await (const part of response as AsyncIterable<Buffer>) parts.push(part);
    finish();
    if (!response.complete) throw new ConnectionError("the answer was cut", true);
    return Buffer.concat(parts);
  } catch (error) {
    if (failed !== undefined && !call.signal?.aborted) throw failed instanceof DsecError ? failed : sourceError(failed);
    throw error;
  }
}

function sourceError(error: unknown): unknown {
  return error instanceof Error ? error : new Error(String(error));
}

async function pump(source: Exclude<BodySource, string | Uint8Array>, request: ClientRequest): Promise<void> {
  let closed = false;
  let wake = () => {};
  const stop = () => {
    closed = true;
    wake();
  };
  request.once("close", stop);
  // An answer that comes before the body's end is an error of the server's: no more is sent.
  request.once("response", () => {
    if (!request.writableEnded) stop();
  });
  request.on("drain", () => wake());
  for await (const part of source) {
    if (closed) break;
    if (part.length === 0 || request.write(part)) continue;
    await new Promise<void>((resolve) => {
      wake = resolve;
      if (closed) resolve();
    });
  }
  if (!request.destroyed) request.end();
}

/** Pieces of a body as they come; an opening that is interrupted is repeated. @throws ConnectionError for a body that is cut */
export async function* readBody(calls: Calls, call: BodyCall): AsyncGenerator<Buffer, void, void> {
  const { body, finish } = await retrying(() => calls.http.openLong(call), {
    withinMs: calls.retryMs,
    harmless: true,
    signal: call.signal,
  });
  try {
    yield* body;
  } finally {
    finish();
  }
}

/** Whole body as one array. */
export async function collectBody(calls: Calls, call: BodyCall): Promise<Uint8Array> {
  const attempt = () => calls.http.exchange({ ...call, long: true });
  return retrying(attempt, { withinMs: calls.retryMs, harmless: true, signal: call.signal });
}
