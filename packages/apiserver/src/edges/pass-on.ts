// Passes a call on to an edge, undecoded: bytes in, bytes out, with back-pressure and aborts both ways.
import { request as httpRequest, type IncomingMessage, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { drain } from "@dsec/rpc";
import type { Connection } from "./connection.ts";
import { type EdgeAddress, edgeConnections, unreachable } from "./edge-calls.ts";
import type { ResponseHead } from "./response-reader.ts";

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
  "content-length",
  "x-dsec-principal",
  "x-request-id",
]);

const answerDropped = new Set([
  "connection",
  "keep-alive",
  "proxy-connection",
  "transfer-encoding",
  "upgrade",
  "x-request-id",
]);

/** Names and values in turn, as Node's rawHeaders, without those that go no further. */
function keptHeaders(message: IncomingMessage, drop: ReadonlySet<string>): string[] {
  const raw = message.rawHeaders;
  const named = message.headers.connection;
  const listed =
    named === undefined || !named.includes(",") ? undefined : new Set(named.toLowerCase().split(/\s*,\s*/));
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
  /** The body where it was read already. */
  readonly body?: Buffer | undefined;
}

/** Bodies up to this are read first and sent in one piece. */
export const smallBodyBytes = 64 * 1024;

/**
 * Streams the call to the edge and its answer back. Resolves when the answer is out or the caller has gone; rejects with
 * EDGE_UNREACHABLE where nothing has been answered yet. An answer that breaks half-way breaks the caller's connection.
 */
export function passOn(call: PassedCall, request: IncomingMessage, response: ServerResponse): Promise<void> {
  return new Promise((resolve, reject) => {
    // Callers of HTTP/1.0 read no chunks.
    const raw = request.httpVersion !== "1.0";
    let connection: Connection | undefined;
    let ended = false;
    const finish = () => {
      ended = true;
      response.off("close", onCallerGone);
      resolve();
    };
    const onCallerGone = () => {
      connection?.destroy();
      finish();
    };
    response.once("close", onCallerGone);
    connection = edgeConnections.start(call.address.socket, request.method ?? "GET", headOf(call, request), raw, {
      head: (head) => writeHead(response, head, call.requestId, raw),
      data: (bytes, release) => {
        const more = response.write(bytes, release);
        if (!more) response.once("drain", () => connection?.resume());
        return more;
      },
      end: () => {
        response.end();
        drain(request);
        finish();
      },
      fail: (error) => {
        if (ended) return;
        response.off("close", onCallerGone);
        ended = true;
        if (!response.headersSent) return reject(unreachable(call.address.edge, error));
        // An answer without its end must not look whole.
        response.destroy();
        resolve();
      },
    });
    if (call.body !== undefined) connection.requestEnded();
    else sendBody(request, connection, () => ended);
  });
}

function writeHead(response: ServerResponse, head: ResponseHead, requestId: string, raw: boolean): void {
  const headers: string[] = [];
  for (let i = 0; i < head.headers.length; i += 2) {
    const name = head.headers[i] as string;
    if (!answerDropped.has(name)) headers.push(name, head.headers[i + 1] as string);
  }
  headers.push("x-request-id", requestId);
  const chunked = head.framing === "chunked" && raw;
  if (chunked) headers.push("transfer-encoding", "chunked");
  response.writeHead(head.status, headers as never);
  // The edge's own chunks go through as they are; Node must not put others around them.
  if (chunked) response.chunkedEncoding = false;
  response.flushHeaders();
}

/** The request's head for the edge, with the body where it is there. */
function headOf(call: PassedCall, request: IncomingMessage): Buffer {
  const kept = keptHeaders(request, dropped);
  let text = `${request.method} ${request.url} HTTP/1.1\r\nhost: ${call.address.edge}\r\n`;
  for (let i = 0; i < kept.length; i += 2) text += `${kept[i]}: ${kept[i + 1]}\r\n`;
  if (call.body !== undefined) text += `content-length: ${call.body.length}\r\n`;
  else if (request.headers["transfer-encoding"] !== undefined) text += "transfer-encoding: chunked\r\n";
  else text += `content-length: ${request.headers["content-length"] ?? 0}\r\n`;
  text += `x-dsec-principal: ${call.token}\r\nx-request-id: ${call.requestId}\r\n\r\n`;
  const head = Buffer.from(text, "latin1");
  return call.body === undefined ? head : Buffer.concat([head, call.body]);
}

function sendBody(request: IncomingMessage, connection: Connection, isOver: () => boolean): void {
  const chunked = request.headers["transfer-encoding"] !== undefined;
  const onDrain = () => request.resume();
  request.on("data", (bytes: Buffer) => {
    if (isOver()) return;
    let more: boolean;
    if (chunked) {
      connection.cork();
      connection.write(`${bytes.length.toString(16)}\r\n`);
      connection.write(bytes);
      more = connection.write("\r\n");
      connection.uncork();
    } else more = connection.write(bytes);
    if (!more) request.pause();
  });
  connection.onDrain(onDrain);
  request.on("end", () => {
    connection.offDrain(onDrain);
    if (isOver()) return;
    if (chunked) connection.write("0\r\n\r\n");
    connection.requestEnded();
  });
  // A request that was cut must not look whole to the edge.
  request.on("close", () => {
    connection.offDrain(onDrain);
    if (!request.complete && !isOver()) connection.destroy();
  });
}

/** Passes an upgrade (WebSocket) on. Rejects with EDGE_UNREACHABLE before the edge has answered. */
export function passUpgradeOn(call: PassedCall, request: IncomingMessage, socket: Socket, head: Buffer): Promise<void> {
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
      socket.write(upgradeHead(answer, ["connection: Upgrade", `upgrade: ${answer.headers.upgrade ?? "websocket"}`]));
      if (edgeHead.length > 0) socket.write(edgeHead);
      if (head.length > 0) edgeSocket.write(head);
      socket.setNoDelay(true);
      join(socket, edgeSocket);
      resolve();
    });
    upstream.on("response", (answer) => {
      socket.write(upgradeHead(answer, ["connection: close"]));
      answer.pipe(socket);
      answer.on("end", resolve);
    });
    upstream.end();
  });
}

function upgradeHead(answer: IncomingMessage, more: readonly string[]): string {
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
