// The way in: authentication, authorisation, then one of our own methods or a call that is passed on to an edge.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { DsecError, printable } from "@dsec/api";
import { type Authenticator, authorise, isMethod, type Method } from "@dsec/iam";
import {
  asCallerError,
  contentTypeOf,
  drain,
  type OwnMethod,
  rawError,
  readBody,
  requestIdOf,
  sendError,
  serveUnary,
} from "@dsec/rpc";
import type { Logger } from "pino";
import { Call, Departure } from "./call.ts";
import type { Edges } from "./edges/edges.ts";
import { passOn, passUpgradeOn, smallBodyBytes } from "./edges/pass-on.ts";
import { maxPeekedBytes, sandboxInBody, sandboxInPath } from "./edges/sandbox-of.ts";
import { bearerOf } from "./http/bearer.ts";
import { type OpenCall, OpenCalls } from "./http/open-calls.ts";
import type { PrincipalTokens } from "./principal-tokens.ts";

/** Longer than any client keeps an idle connection. */
const keepAliveMs = 75_000;
const headersMs = 30_000;
const maxHeaderBytes = 32 * 1024;

export interface FrontParts {
  readonly authenticator: Authenticator;
  readonly tokens: PrincipalTokens;
  readonly edges: Edges;
  readonly own: ReadonlyMap<string, OwnMethod<Call>>;
  readonly importLayer: (request: IncomingMessage, response: ServerResponse, call: Call) => Promise<void>;
  readonly log: Logger;
}

export class Front {
  readonly server: Server;
  readonly open = new OpenCalls();
  readonly #parts: FrontParts;

  constructor(parts: FrontParts) {
    this.#parts = parts;
    this.server = createServer({
      keepAlive: true,
      keepAliveTimeout: keepAliveMs,
      headersTimeout: headersMs,
      // Bodies may take as long as they like: uploads are large.
      requestTimeout: 0,
      maxHeaderSize: maxHeaderBytes,
      highWaterMark: 256 * 1024,
      noDelay: true,
    });
    this.server.on("request", (request, response) => void this.#serve(request, response));
    this.server.on("upgrade", (request, socket: Socket, head: Buffer) => void this.#upgrade(request, socket, head));
    this.server.on("clientError", onClientError);
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const requestId = requestIdOf(request);
    try {
      const path = pathOf(request);
      if (path === "/healthz") return health(response);
      const secret = bearerOf(request);
      const found = this.#parts.authenticator.authenticate(secret);
      const principal = found instanceof Promise ? await found : found;
      const method = methodOf(path);
      authorise(principal, method);
      const signed = this.#parts.tokens.token(principal);
      const token = typeof signed === "string" ? signed : await signed;
      const departure = new Departure();
      const open: OpenCall = { secret, cut: () => cutCall(departure, response) };
      this.open.add(principal.keyId, open);
      response.once("close", () => {
        this.open.delete(principal.keyId, open);
        if (!response.writableFinished) departure.happen();
      });
      const call = new Call(method, requestId, principal, token, departure);
      await this.#dispatch(request, response, call);
    } catch (error) {
      this.#answerError(request, response, error, requestId);
    }
  }

  #dispatch(request: IncomingMessage, response: ServerResponse, call: Call): Promise<void> {
    if (call.method === "/v1/layers") return this.#parts.importLayer(request, response, call);
    const own = this.#parts.own.get(call.method);
    if (own !== undefined) return serveUnary(own, request, response, call);
    return this.#passOn(request, response, call);
  }

  async #passOn(request: IncomingMessage, response: ServerResponse, call: Call): Promise<void> {
    const { token, requestId } = call;
    const named = sandboxInPath(request.url ?? "") ?? request.headers["x-dsec-sandbox"];
    if (typeof named === "string") {
      const address = this.#parts.edges.ofSandbox(named);
      const length = Number(request.headers["content-length"] ?? Number.NaN);
      const body = length <= smallBodyBytes ? await readBody(request, smallBodyBytes) : undefined;
      return passOn({ address, token, requestId, body }, request, response);
    }
    if (request.method !== "POST")
      throw new DsecError("NO_SUCH_METHOD", `${call.method} is called by POST, not ${request.method}`);
    const contentType = contentTypeOf(request);
    if (!/^application\/(connect\+)?(json|proto)$/.test(contentType)) {
      throw new DsecError(
        "INVALID_ARGUMENT",
        "the content type is none of Connect's: application/json or application/proto",
      );
    }
    if (request.headers["content-encoding"] !== undefined && request.headers["content-encoding"] !== "identity") {
      throw new DsecError("NOT_SUPPORTED", "a compressed message needs the header x-dsec-sandbox");
    }
    const body = await readBody(request, maxPeekedBytes);
    const address = this.#parts.edges.ofSandbox(sandboxInBody(contentType, body));
    return passOn({ address, token, requestId, body }, request, response);
  }

  async #upgrade(request: IncomingMessage, socket: Socket, head: Buffer): Promise<void> {
    const requestId = requestIdOf(request);
    socket.on("error", () => socket.destroy());
    try {
      const sandbox = sandboxInPath(request.url ?? "");
      if (sandbox === undefined) throw noSuchMethod(pathOf(request));
      const secret = bearerOf(request);
      const principal = await this.#parts.authenticator.authenticate(secret);
      authorise(principal, "/v1/sandboxes/");
      const token = await this.#parts.tokens.token(principal);
      const open: OpenCall = { secret, cut: () => socket.destroy() };
      this.open.add(principal.keyId, open);
      socket.once("close", () => this.open.delete(principal.keyId, open));
      if (socket.destroyed) this.open.delete(principal.keyId, open);
      await passUpgradeOn({ address: this.#parts.edges.ofSandbox(sandbox), token, requestId }, request, socket, head);
    } catch (error) {
      if (!socket.destroyed) socket.end(rawError(asCallerError(error, requestId, this.#parts.log), requestId));
    }
  }

  #answerError(request: IncomingMessage, response: ServerResponse, thrown: unknown, requestId: string): void {
    const error = asCallerError(thrown, requestId, this.#parts.log);
    this.#parts.log.debug({ requestId, url: pathOf(request), reason: error.reason }, "a call failed");
    if (response.destroyed) return;
    sendError(response, contentTypeOf(request), error, requestId);
    drain(request);
  }
}

function pathOf(request: IncomingMessage): string {
  const url = request.url ?? "";
  const end = url.indexOf("?");
  return end < 0 ? url : url.slice(0, end);
}

/** The name in the table of roles. Throws NO_SUCH_METHOD. */
function methodOf(path: string): Method {
  const name = path.slice(1);
  if (name.startsWith("dsec.v1.") && isMethod(name)) return name;
  if (path === "/v1/layers") return "/v1/layers";
  if (sandboxInPath(path) !== undefined) return "/v1/sandboxes/";
  throw noSuchMethod(path);
}

function noSuchMethod(path: string): DsecError {
  return new DsecError("NO_SUCH_METHOD", `there is no method or path "${printable(path)}"`);
}

function health(response: ServerResponse): void {
  response.writeHead(200, { "content-type": "text/plain", "content-length": 3 });
  response.end("ok\n");
}

function cutCall(departure: Departure, response: ServerResponse): void {
  departure.happen();
  response.destroy();
}

/** A request that does not parse, or is too slow: it has no method and no key yet. */
function onClientError(error: NodeJS.ErrnoException, socket: Socket): void {
  if (socket.destroyed || !socket.writable || error.code === "ECONNRESET") {
    socket.destroy();
    return;
  }
  const tooLarge = error.code === "HPE_HEADER_OVERFLOW";
  const answer = tooLarge
    ? new DsecError("TOO_LARGE", `the request's head is larger than ${maxHeaderBytes} bytes`)
    : new DsecError("INVALID_ARGUMENT", "the request is not HTTP/1.1 that this server reads");
  socket.end(rawError(answer, "unknown", tooLarge ? 431 : 400));
}
