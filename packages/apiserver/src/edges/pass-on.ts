// Passes a call on to an edge, undecoded: bytes in, bytes out, with back-pressure and aborts both ways.
import { type IncomingMessage, request as httpRequest, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { type EdgeAddress, edgeAgent, unreachable } from "./edge-calls.ts";

/** Of one connection only (RFC 9110, 7.6.1), ours to set, or not the edge's business. */
const dropped = new Set([
  "connection",
  "keep-alive",
  "proxy-connection",
  "proxy-authenticate",
  "proxy-authorization",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
  "expect",
  "host",
  "authorization",
  "cookie",
  "x-dsec-principal",
  "x-request-id",
]);

const answerDropped = new Set(["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "x-request-id"]);

/** Names and values in turn, as Node's rawHeaders, without those that go no further. */
function keptHeaders(message: IncomingMessage, drop: ReadonlySet<string>): string[] {
  const raw = message.rawHeaders;
  const named = message.headers.connection;
  const listed = named === undefined || !named.includes(",") ? undefined : new Set(named.toLowerCase().split(/\s*,\s*/));
  const single = listed === undefined ? named?.toLowerCase() : undefined;
  const kept: string[] = [];
  for (let i = 0; i < raw.length; i += 2) {
    const name = (raw[i] as string).toLowerCase();
    if (drop.has(name) || name === single || listed?.has(name)) continue;
    kept.push(name, raw[i + 1] as string);
  }
  return kept;
}

export interface PassedCall {
  readonly address: EdgeAddress;
  readonly token: string;
  readonly requestId: string;
  /** The body where it was read already, to find the sandbox. */
  readonly body?: Buffer | undefined;
}

/**
 * Streams the call to the edge and its answer back. Resolves when the answer is out or the caller has gone; rejects with
 * EDGE_UNREACHABLE where nothing has been answered yet. An answer that breaks half-way breaks the caller's connection.
 */
export function passOn(call: PassedCall, request: IncomingMessage, response: ServerResponse): Promise<void> {
  return new Promise((resolve, reject) => {
    const headers = keptHeaders(request, dropped);
    headers.push("host", call.address.edge, "x-dsec-principal", call.token, "x-request-id", call.requestId);
    if (call.body !== undefined) replaceLength(headers, call.body.length);
    else if (request.headers["transfer-encoding"] !== undefined) headers.push("transfer-encoding", "chunked");
    const upstream = httpRequest({
      agent: edgeAgent,
      socketPath: call.address.socket,
      method: request.method,
      path: request.url,
      headers: headers as never,
      setHost: false,
    });
    upstream.setNoDelay?.(true);
    let answer: IncomingMessage | undefined;
    const onCallerGone = () => {
      if (response.writableFinished) return;
      upstream.destroy();
      resolve();
    };
    response.once("close", onCallerGone);
    upstream.on("error", (error) => {
      if (response.destroyed) return resolve();
      if (response.headersSent) {
        response.destroy();
        return resolve();
      }
      reject(unreachable(call.address.edge, error));
    });
    upstream.on("response", (incoming) => {
      answer = incoming;
      const kept = keptHeaders(incoming, answerDropped);
      kept.push("x-request-id", call.requestId);
      response.writeHead(incoming.statusCode ?? 502, kept as never);
      response.flushHeaders?.();
      incoming.on("data", (chunk: Buffer) => {
        if (!response.write(chunk)) incoming.pause();
      });
      response.on("drain", () => incoming.resume());
      incoming.on("end", () => {
        // An answer without its end is no answer: the caller must see a broken connection, not a short body.
        if (!incoming.complete) response.destroy();
        else response.end();
        resolve();
      });
      incoming.on("error", () => {
        response.destroy();
        resolve();
      });
    });
    sendBody(call.body, request, upstream, () => answer !== undefined);
  });
}

function sendBody(
  body: Buffer | undefined,
  request: IncomingMessage,
  upstream: ReturnType<typeof httpRequest>,
  isAnswered: () => boolean,
): void {
  if (body !== undefined) {
    upstream.end(body);
    return;
  }
  request.on("data", (chunk: Buffer) => {
    if (!upstream.write(chunk)) request.pause();
  });
  upstream.on("drain", () => request.resume());
  request.on("end", () => upstream.end());
  // A request that was cut must not look whole to the edge.
  request.on("close", () => {
    if (!request.complete) upstream.destroy();
  });
  // The edge answered without reading on: what is left of the body goes nowhere.
  upstream.on("close", () => {
    if (isAnswered() && !request.complete) request.resume();
  });
}

function replaceLength(headers: string[], length: number): void {
  const at = headers.indexOf("content-length");
  if (at >= 0) headers.splice(at, 2);
  headers.push("content-length", String(length));
}

/** Passes an upgrade (WebSocket) on. Rejects with EDGE_UNREACHABLE before the edge has answered. */
export function passUpgradeOn(
  call: PassedCall,
  request: IncomingMessage,
  socket: Socket,
  head: Buffer,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const headers = keptHeaders(request, dropped);
    headers.push("host", call.address.edge, "x-dsec-principal", call.token, "x-request-id", call.requestId);
    headers.push("connection", "Upgrade", "upgrade", request.headers.upgrade ?? "websocket");
    const upstream = httpRequest({
      agent: false,
      socketPath: call.address.socket,
      method: request.method,
      path: request.url,
      headers: headers as never,
      setHost: false,
    });
    socket.once("close", () => upstream.destroy());
    upstream.on("error", (error) => reject(unreachable(call.address.edge, error)));
    upstream.on("upgrade", (answer, edgeSocket: Socket, edgeHead: Buffer) => {
      socket.write(headOf(answer, ["connection: Upgrade", `upgrade: ${answer.headers.upgrade ?? "websocket"}`]));
      if (edgeHead.length > 0) socket.write(edgeHead);
      if (head.length > 0) edgeSocket.write(head);
      socket.setNoDelay(true);
      join(socket, edgeSocket);
      resolve();
    });
    upstream.on("response", (answer) => {
      socket.write(headOf(answer, ["connection: close"]));
      answer.pipe(socket);
      answer.on("end", resolve);
    });
    upstream.end();
  });
}

function headOf(answer: IncomingMessage, more: readonly string[]): string {
  const kept = keptHeaders(answer, answerDropped);
  const lines = [`HTTP/1.1 ${answer.statusCode} ${answer.statusMessage ?? ""}`];
  for (let i = 0; i < kept.length; i += 2) lines.push(`${kept[i]}: ${kept[i + 1]}`);
  return `${[...lines, ...more].join("\r\n")}\r\n\r\n`;
}

function join(a: Socket, b: Socket): void {
  a.pipe(b);
  b.pipe(a);
  const end = () => {
    a.destroy();
    b.destroy();
  };
  a.on("close", end).on("error", end);
  b.on("close", end).on("error", end);
}
