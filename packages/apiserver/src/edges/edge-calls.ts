// Calls of our own to an edge: unary Connect in binary form over its Unix socket.
import {
  create,
  type DescMessage,
  type DescMethodUnary,
  fromBinary,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { codeFromHttpStatus, errorFromJsonBytes } from "@connectrpc/connect/protocol-connect";
import { DsecError } from "@dsec/api";
import { EdgeConnections } from "./connection.ts";

export const edgeConnections = new EdgeConnections();

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
  const { status, bytes } = await exchange(address, path, body, options);
  if (status === 200) return bytes;
  const fallback = new ConnectError(
    `${address.edge} answered ${path} with status ${status}`,
    codeFromHttpStatus(status),
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
  const known =
    error.code === Code.Unknown
      ? new DsecError("INTERNAL", `${edge} failed: ${error.rawMessage}`)
      : DsecError.from(error);
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
): Promise<{ status: number; bytes: Buffer }> {
  return new Promise((resolve, reject) => {
    let timer: NodeJS.Timeout | undefined;
    const chunks: Buffer[] = [];
    let size = 0;
    let status = 0;
    const end = () => {
      clearTimeout(timer);
      options.signal?.removeEventListener("abort", onAbort);
    };
    const giveUp = (error: DsecError) => {
      end();
      connection.destroy();
      reject(error);
    };
    const onAbort = () => giveUp(new DsecError("CANCELLED", "the caller gave the call up", { outcomeUnknown: true }));
    if (options.timeoutMs < 2 ** 31) {
      const late = () =>
        giveUp(
          new DsecError("DEADLINE_EXCEEDED", `${address.edge} did not answer ${path} in time`, {
            outcomeUnknown: true,
          }),
        );
      timer = setTimeout(late, Math.max(0, options.timeoutMs));
    }
    options.signal?.addEventListener("abort", onAbort);
    const head =
      `POST ${path} HTTP/1.1\r\nhost: ${address.edge}\r\ncontent-type: application/proto\r\n` +
      `connect-protocol-version: 1\r\ncontent-length: ${body.length}\r\n` +
      `x-dsec-principal: ${options.token}\r\nx-request-id: ${options.requestId}\r\n\r\n`;
    const connection = edgeConnections.start(
      address.socket,
      "POST",
      Buffer.concat([Buffer.from(head, "latin1"), body]),
      false,
      {
        head: (answer) => {
          status = answer.status;
        },
        data: (bytes, release) => {
          size += bytes.length;
          if (size <= maxReplyBytes) chunks.push(Buffer.from(bytes));
          release();
          if (size > maxReplyBytes) giveUp(new DsecError("TOO_LARGE", `the answer of ${address.edge} is too large`));
          return true;
        },
        end: () => {
          end();
          resolve({ status, bytes: chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks, size) });
        },
        fail: (error) => {
          end();
          reject(unreachable(address.edge, error));
        },
      },
    );
    connection.requestEnded();
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
