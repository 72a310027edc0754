// Calls of our own to an edge: unary Connect in binary form over its Unix socket.
import { Agent, type IncomingMessage, request as httpRequest } from "node:http";
import { create, type DescMessage, type DescMethodUnary, fromBinary, type MessageInitShape, type MessageShape, toBinary } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { codeFromHttpStatus, errorFromJsonBytes } from "@connectrpc/connect/protocol-connect";
import { DsecError } from "@dsec/api";

/** Fewer seconds than the edges keep a connection, so that none is used as it closes. */
export const edgeAgent = new Agent({ keepAlive: true, maxSockets: Number.POSITIVE_INFINITY, maxFreeSockets: 512, scheduling: "lifo", timeout: 0 });

const maxReplyBytes = 64 * 1024 * 1024;

export interface EdgeAddress {
  readonly edge: string;
  readonly socket: string;
}

export interface EdgeCallOptions {
  /** The signed principal. */
  readonly token: string;
  readonly requestId: string;
  readonly timeoutMs: number;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Calls a unary method of an edge. Rejects with what the edge answered; with EDGE_UNREACHABLE where it could not be
 * reached (outcome "unknown" unless the connection was refused), with DEADLINE_EXCEEDED (outcome "unknown") when it is late.
 */
export async function callEdge<I extends DescMessage, O extends DescMessage>(
  address: EdgeAddress,
  method: DescMethodUnary<I, O>,
  request: MessageInitShape<I>,
  options: EdgeCallOptions,
): Promise<MessageShape<O>> {
  return fromBinary(method.output, await callEdgeEncoded(address, method, request, options));
}

/** The same, with the reply's bytes. */
export async function callEdgeEncoded<I extends DescMessage>(
  address: EdgeAddress,
  method: DescMethodUnary<I, DescMessage>,
  request: MessageInitShape<I>,
  options: EdgeCallOptions,
): Promise<Buffer> {
  const body = toBinary(method.input, create(method.input, request));
  const path = `/${method.parent.typeName}/${method.name}`;
  const { response, bytes } = await exchange(address, path, body, options);
  if (response.statusCode === 200) return bytes;
  const fallback = new ConnectError(
    `${address.edge} answered ${path} with status ${response.statusCode}`,
    codeFromHttpStatus(response.statusCode ?? 0),
  );
  throw answered(errorFromAnswer(bytes, fallback), address.edge);
}

function errorFromAnswer(bytes: Buffer, fallback: ConnectError): ConnectError {
  try {
    return errorFromJsonBytes(bytes, undefined, fallback);
  } catch (error) {
    return error instanceof ConnectError ? error : fallback;
  }
}

const answeredErrors = new WeakSet<Error>();

function answered(error: ConnectError, edge: string): DsecError {
  const known = error.code === Code.Unknown ? new DsecError("INTERNAL", `${edge} failed: ${error.rawMessage}`) : DsecError.from(error);
  answeredErrors.add(known);
  return known;
}

/** The edge itself said this: the call did what the error says and nothing else. */
export function isAnswered(error: unknown): boolean {
  return error instanceof Error && answeredErrors.has(error);
}

function exchange(
  address: EdgeAddress,
  path: string,
  body: Uint8Array,
  options: EdgeCallOptions,
): Promise<{ response: IncomingMessage; bytes: Buffer }> {
  return new Promise((resolve, reject) => {
    let settled = false;
    let timer: NodeJS.Timeout | undefined;
    const end = (run: () => void) => {
      if (settled) return;
      settled = true;
      clearTimeout(timer);
      options.signal?.removeEventListener("abort", onAbort);
      run();
    };
    const fail = (error: DsecError) => {
      end(() => reject(error));
      request.destroy();
    };
    const request = httpRequest({
      agent: edgeAgent,
      socketPath: address.socket,
      path,
      method: "POST",
      headers: {
        host: address.edge,
        "content-type": "application/proto",
        "connect-protocol-version": "1",
        "content-length": body.length,
        "x-dsec-principal": options.token,
        "x-request-id": options.requestId,
      },
    });
    const onAbort = () => fail(new DsecError("CANCELLED", "the caller gave the call up", { outcomeUnknown: true }));
    if (options.timeoutMs < 2 ** 31) {
      const late = () => fail(new DsecError("DEADLINE_EXCEEDED", `${address.edge} did not answer ${path} in time`, { outcomeUnknown: true }));
      timer = setTimeout(late, Math.max(0, options.timeoutMs));
    }
    options.signal?.addEventListener("abort", onAbort);
    request.on("error", (error) => fail(unreachable(address.edge, error)));
    request.on("response", (response) => {
      const chunks: Buffer[] = [];
      let size = 0;
      response.on("data", (chunk: Buffer) => {
        size += chunk.length;
        if (size > maxReplyBytes) fail(new DsecError("TOO_LARGE", `the answer of ${address.edge} is too large`));
        else chunks.push(chunk);
      });
      response.on("end", () => {
        if (response.complete) end(() => resolve({ response, bytes: Buffer.concat(chunks, size) }));
        else fail(unreachable(address.edge, new Error("the answer was cut")));
      });
      response.on("error", (error) => fail(unreachable(address.edge, error)));
    });
    request.end(body);
  });
}

const refused = new Set(["ECONNREFUSED", "ENOENT", "EACCES", "EAGAIN", "ENOTSOCK"]);

/** EDGE_UNREACHABLE; the outcome is unknown unless the connection itself was refused. */
export function unreachable(edge: string, error: Error): DsecError {
  const code = "code" in error && typeof error.code === "string" ? error.code : "";
  return new DsecError("EDGE_UNREACHABLE", `the node ${edge} cannot be reached${code === "" ? "" : ` (${code})`}`, {
    outcomeUnknown: !refused.has(code),
    retryAfterMs: 1_000,
    metadata: { edge },
    cause: error,
  });
}
