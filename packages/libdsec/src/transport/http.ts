// One HTTP/1.1 exchange at a time over kept-alive connections. No retries here: retry.ts decides about those.
import { Agent, type ClientRequest, type IncomingMessage, type OutgoingHttpHeaders, request } from "node:http";
import { Agent as TlsAgent, request as tlsRequest } from "node:https";
import { type DescMessage, type DescMethodUnary, fromBinary, type MessageShape, toBinary } from "@bufbuild/protobuf";
import { DsecError } from "@dsec/api";
import { ConnectionError, cancelled } from "../errors.ts";
import type { Settings } from "../settings.ts";
import { AnswerBody } from "./answer-body.ts";
import { type RawResponse, rawRequest } from "./raw.ts";
import { errorFromWire } from "./wire-error.ts";

export interface CallOptions {
  /** Sent as x-dsec-sandbox, by which the apiserver finds the edge without decoding. */
  sandboxId?: string | undefined;
  signal?: AbortSignal | undefined;
  /** Milliseconds for this attempt; 0: none. */
  timeoutMs?: number | undefined;
  /** May be open for long: does not take one of the connections for short calls. */
  long?: boolean | undefined;
}

export interface Exchange extends CallOptions {
  method: "GET" | "PUT" | "POST";
  path: string;
  headers?: OutgoingHttpHeaders;
  body?: Uint8Array | undefined;
}

/** Short calls share this many connections; what waits for one is in Node's queue. */
const maxShortConnections = 64;

export class HttpTransport {
  /** A server has answered at this endpoint at least once. */
  answered = false;
  readonly settings: Settings;
  readonly #short: Agent;
  readonly #long: Agent;
  readonly #request: typeof request;
  readonly #base: { host: string; port: number; headers: Record<string, string> };
  readonly #open = new Set<{ destroy(error: DsecError): unknown }>();
  readonly #tls: boolean;
  #closed = false;

  constructor(settings: Settings) {
    this.settings = settings;
    const url = new URL(settings.endpoint);
    const tls = url.protocol === "https:";
    this.#tls = tls;
    const AgentOf = tls ? TlsAgent : Agent;
    // Idle connections go before the server's own keep-alive ends (its hint is heeded by Node as well).
    const common = { keepAlive: true, keepAliveMsecs: 15_000, timeout: 30_000, scheduling: "lifo" as const };
    this.#short = new AgentOf({ ...common, maxSockets: maxShortConnections, maxFreeSockets: maxShortConnections });
    this.#long = new AgentOf({ ...common, maxFreeSockets: 256 });
    this.#request = tls ? (tlsRequest as typeof request) : request;
    this.#base = {
      host: url.hostname.replace(/^\[|\]$/g, ""),
      port: url.port !== "" ? Number(url.port) : tls ? 443 : 80,
      headers: { authorization: `Bearer ${settings.apiKey}`, "user-agent": "libdsec-node/0.1" },
    };
  }

  /** One unary call: protobuf over POST. */
  async unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    input: MessageShape<I>,
    options: CallOptions = {},
  ): Promise<MessageShape<O>> {
    const response = await this.exchange({
      ...options,
      method: "POST",
      path: `/${method.parent.typeName}/${method.name}`,
      headers: unaryHeaders,
      body: toBinary(method.input, input),
    });
    return fromBinary(method.output, response);
  }

  /** Sends and collects a whole answer. @throws DsecError of the server's, ConnectionError, CANCELLED, DEADLINE_EXCEEDED. */
  exchange(what: Exchange): Promise<Uint8Array> {
    return new Promise((resolve, reject) => {
      const end = this.#send(what, reject, (response) => {
        const body = new AnswerBody(response.headers["content-length"]);
        response.on("data", (part: Buffer) => body.add(part));
        response.once("end", () => {
          if (!response.complete) return;
          end();
          const bytes = body.bytes();
          if (response.statusCode !== 200)
            reject(errorFromWire(bytes, response.statusCode ?? 0, response.headers["retry-after"]));
          else resolve(bytes);
        });
      });
    });
  }

  /**
   * Sends and gives the answer's head and its open body once the status is good (200 or 206).
   * A body that breaks emits "error" or "close" before "end"; `finish` must be called when the reader is done.
   */
  open(
    what: Exchange & { write?: (request: ClientRequest) => void },
  ): Promise<{ response: IncomingMessage; finish: () => void }> {
    return new Promise((resolve, reject) => {
      const finish = this.#send(
        what,
        reject,
        (response) => {
          if (response.statusCode === 200 || response.statusCode === 206) {
            resolve({ response, finish });
            return;
          }
          const parts: Buffer[] = [];
          response.on("data", (part: Buffer) => parts.push(part));
          response.once("end", () => {
            finish();
            reject(errorFromWire(Buffer.concat(parts), response.statusCode ?? 0, response.headers["retry-after"]));
          });
        },
        what.write,
      );
    });
  }

  /**
   * Opens an answer that is long: 200 or 206, with its body as it comes. Ends with `finish`, with the loop over the body,
   * or with the signal.
   */
  async openLong(what: Exchange): Promise<{ body: AsyncIterable<Buffer>; finish: () => void }> {
    if (this.#tls) {
      const { response, finish } = await this.open({ ...what, long: true });
      const leave = () => {
        finish();
        response.destroy();
      };
      return { body: wholeBody(response), finish: leave };
    }
    if (this.#closed) throw new DsecError("CANCELLED", "the client is closed");
    const { signal } = what;
    if (signal?.aborted) throw cancelled(signal.reason);
    const body = what.body ?? new Uint8Array(0);
    const fields = {
      host: this.#base.host.includes(":")
        ? `[${this.#base.host}]:${this.#base.port}`
        : `${this.#base.host}:${this.#base.port}`,
      ...this.#base.headers,
      ...what.headers,
      ...(what.sandboxId !== undefined && { "x-dsec-sandbox": what.sandboxId }),
      ...(what.method !== "GET" && { "content-length": body.length }),
      connection: "close",
    };
    const lines = Object.entries(fields).map(([name, value]) => `${name}: ${value}\r\n`);
    const opening = rawRequest(
      this.#base.host,
      this.#base.port,
      `${what.method} ${what.path} HTTP/1.1\r\n${lines.join("")}\r\n`,
      body,
    );
    let response: RawResponse | undefined;
    let given: DsecError | undefined;
    // An exchange that is given up while it opens is ended as soon as it is there.
    const leave = (error: DsecError) => {
      given = error;
      response?.destroy(error);
      rejectOpening(error);
    };
    let rejectOpening: (error: DsecError) => void = () => {};
    const left = new Promise<never>((_, reject) => {
      rejectOpening = reject;
    });
    left.catch(() => {});
    const abort = () => leave(cancelled(signal?.reason));
    const onClose = { destroy: (error: DsecError) => leave(error) };
    signal?.addEventListener("abort", abort, { once: true });
    this.#open.add(onClose);
    const finish = () => {
      signal?.removeEventListener("abort", abort);
      this.#open.delete(onClose);
      response?.destroy();
    };
    opening.then(
      (late) => {
        response = late;
        if (given) late.destroy(given);
      },
      () => {},
    );
    try {
      const answer = await Promise.race([opening, left]);
      this.answered = true;
      if (answer.status === 200 || answer.status === 206) return { body: answer.body, finish };
      const parts: Buffer[] = [];
      for await (const part of answer.body) parts.push(part);
      throw errorFromWire(Buffer.concat(parts), answer.status, answer.headers.get("retry-after"));
    } catch (error) {
      finish();
      throw error;
    }
  }

  /** Headers and address for what is no plain exchange (WebSockets). */
  get address(): { endpoint: string; headers: Record<string, string> } {
    return { endpoint: this.settings.endpoint, headers: { ...this.#base.headers } };
  }

  /** Ends every open exchange; later ones are refused. */
  close(): void {
    this.#closed = true;
    for (const open of this.#open) open.destroy(cancelled());
    this.#open.clear();
    this.#short.destroy();
    this.#long.destroy();
  }

  #send(
    what: Exchange,
    fail: (error: DsecError) => void,
    answer: (response: IncomingMessage) => void,
    write?: (request: ClientRequest) => void,
  ): () => void {
    if (this.#closed) {
      fail(new DsecError("CANCELLED", "the client is closed"));
      return () => {};
    }
    const { signal, timeoutMs = 0 } = what;
    if (signal?.aborted) {
      fail(cancelled(signal.reason));
      return () => {};
    }
    const headers: OutgoingHttpHeaders = { ...this.#base.headers, ...what.headers };
    if (what.sandboxId !== undefined) headers["x-dsec-sandbox"] = what.sandboxId;
    if (what.body) headers["content-length"] = what.body.length;
    const outgoing = this.#request({
      host: this.#base.host,
      port: this.#base.port,
      agent: what.long ? this.#long : this.#short,
      method: what.method,
      path: what.path,
      headers,
    });
    this.#open.add(outgoing);
    let timer: NodeJS.Timeout | undefined;
    let done = false;
    const end = () => {
      if (done) return;
      done = true;
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
      this.#open.delete(outgoing);
    };
    const stop = (error: DsecError) => {
      if (done) return;
      end();
      outgoing.destroy();
      fail(error);
    };
    const abort = () => {
      const error = cancelled(signal?.reason);
      outgoing.destroy(error);
      stop(error);
    };
    signal?.addEventListener("abort", abort, { once: true });
    if (timeoutMs > 0) {
      timer = setTimeout(() => {
        const late = new DsecError("DEADLINE_EXCEEDED", `no answer within ${timeoutMs} ms (${what.path})`, {
          outcomeUnknown: true,
        });
        outgoing.destroy(late);
        stop(late);
      }, timeoutMs);
    }
    outgoing.once("response", (response) => {
      this.answered = true;
      response.once("error", (error) => stop(connectionError(error, true, what)));
      response.once("close", () => {
        if (!response.complete)
          stop(connectionError(new Error("the connection closed in the middle of the answer"), true, what));
      });
      answer(response);
    });
    outgoing.on("error", (error) => stop(connectionError(error, wasSent(error), what)));
    outgoing.once("close", () =>
      stop(connectionError(new Error("the connection closed without an answer"), true, what)),
    );
    if (write) write(outgoing);
    else outgoing.end(what.body);
    return end;
  }
}

/** @throws ConnectionError for a body that is cut */
async function* wholeBody(response: IncomingMessage): AsyncGenerator<Buffer, void, void> {
  try {
    for await (const part of response as AsyncIterable<Buffer>) yield part;
  } catch (error) {
    throw new ConnectionError(`the body broke: ${(error as Error).message}`, true, error);
  }
  if (!response.complete) throw new ConnectionError("the body was cut", true);
}

const unaryHeaders = { "content-type": "application/proto", "connect-protocol-version": "1" };

/** Nothing was sent where no connection came about. */
function wasSent(error: NodeJS.ErrnoException): boolean {
  return !(error.syscall === "connect" || error.syscall === "getaddrinfo");
}

function connectionError(error: Error, sent: boolean, what: Exchange): DsecError {
  if (error instanceof DsecError) return error;
  return new ConnectionError(
    `the connection for ${what.path.split("?")[0]} failed: ${error.message || (error as NodeJS.ErrnoException).code}`,
    sent,
    error,
  );
}
