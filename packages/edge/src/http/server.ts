// The edge's HTTP/1.1 server on its Unix socket.
import { chmodSync, rmSync } from "node:fs";
import http, { type IncomingMessage, type ServerResponse } from "node:http";
import { DsecError, printable } from "@dsec/api";
import { asCallerError, contentTypeOf, drain, requestIdOf, serveStream, serveUnary } from "@dsec/rpc";
import { type Principal, type PrincipalVerifier, requireRole } from "../auth/principal.ts";
import { handleStream, streamPath } from "../commands/stream.ts";
import type { Attacher } from "../lifecycle/attach.ts";
import type { Core } from "../lifecycle/core.ts";
import type { Creator } from "../lifecycle/create.ts";
import type { Ender } from "../lifecycle/end.ts";
import { handleBody, noSuch, split } from "./bodies.ts";
import { EdgeCall } from "./call.ts";
import { sendError } from "./errors.ts";
import { edgeMethods, isStream, type Methods, roleOf } from "./methods.ts";
import { Terminals } from "./terminals.ts";

/** Longer than the clients', so that none of them writes to a connection that is being closed. */
const keepAliveMs = 600_000;

/** Takes a body of POST /v1/layers and answers it. */
export interface LayerImporter {
  handleImport(req: IncomingMessage, res: ServerResponse): Promise<void>;
  has(digest: string): boolean | Promise<boolean>;
  remove(digest: string): Promise<void>;
}

export interface Parts {
  readonly core: Core;
  readonly ender: Ender;
  readonly attacher: Attacher;
  readonly creator: Creator;
  readonly verifier: PrincipalVerifier;
  readonly layers: LayerImporter;
}

export class EdgeServer {
  private readonly parts: Parts;
  private readonly server: http.Server;
  private readonly terminals: Terminals;
  private readonly methods: Methods;
  private readonly path: string;

  constructor(parts: Parts, path: string) {
    this.parts = parts;
    this.path = path;
    this.terminals = new Terminals(parts.core, parts.verifier);
    this.methods = edgeMethods(parts);
    this.server = http.createServer({ highWaterMark: 1024 * 1024, keepAliveTimeout: keepAliveMs }, (req, res) => {
      this.handle(req, res);
    });
    this.server.requestTimeout = 0;
    this.server.headersTimeout = 60_000;
    this.server.on("upgrade", (req, socket, head) => void this.terminals.upgrade(req, socket, head));
  }

  listen(): Promise<void> {
    rmSync(this.path, { force: true });
    return new Promise((resolve, reject) => {
      this.server.once("error", reject);
      this.server.listen({ path: this.path, backlog: 4096 }, () => {
        chmodSync(this.path, 0o660);
        resolve();
      });
    });
  }

  /** Takes no new calls, lets those under way end for a while, then cuts them; sandboxes are not touched. */
  async close(graceMs: number): Promise<void> {
    this.terminals.close();
    const closed = new Promise<void>((resolve) => this.server.close(() => resolve()));
    this.server.closeIdleConnections();
    const timer = setTimeout(() => this.server.closeAllConnections(), graceMs);
    await closed;
    clearTimeout(timer);
  }

  private handle(req: IncomingMessage, res: ServerResponse): void {
    const requestId = requestIdOf(req);
    res.setHeader("x-request-id", requestId);
    const url = req.url ?? "";
    if (url.startsWith("/v1/")) void this.plain(req, res, requestId);
    else if (url === streamPath) void handleStream(this.parts.core, req, res, () => this.principal(req));
    else void this.call(req, res, requestId);
  }

  /** A Connect call. */
  private async call(req: IncomingMessage, res: ServerResponse, requestId: string): Promise<void> {
    const { log } = this.parts.core;
    const name = split(req.url ?? "")[0].slice(1);
    const asError = (error: unknown) => {
      const known = asCallerError(error, requestId, log);
      log.debug({ reason: known.reason, method: name, requestId }, "a call was refused");
      return known;
    };
    try {
      const found = this.principal(req);
      const principal = found instanceof Promise ? await found : found;
      const own = this.methods.get(name);
      if (!own) throw new DsecError("NO_SUCH_METHOD", `there is no method "${printable(name)}"`);
      requireRole(principal, roleOf(own.method.name), name.slice("dsec.v1.".length).replace("/", "."));
      const call = new EdgeCall(requestId, principal, res);
      await (isStream(own) ? serveStream(own, req, res, call, asError) : serveUnary(own, req, res, call));
    } catch (error) {
      refuse(req, res, asError(error), contentTypeOf(req));
    }
  }

  private async plain(req: IncomingMessage, res: ServerResponse, requestId: string): Promise<void> {
    try {
      const principal = await this.principal(req);
      const [path] = split(req.url ?? "");
      if (path.startsWith("/v1/sandboxes/")) {
        await handleBody(this.parts.core, req, res, principal);
      } else if (path === "/v1/layers" && req.method === "POST") {
        requireRole(principal, "builder", "an import of a layer");
        await this.parts.layers.handleImport(req, res);
      } else {
        throw noSuch(req, path);
      }
    } catch (error) {
      const known = DsecError.from(error);
      if (known.reason === "INTERNAL") this.parts.core.log.error({ err: error, requestId }, "a plain call failed");
      refuse(req, res, known);
    }
  }

  private principal(req: IncomingMessage): Principal | Promise<Principal> {
    const token = req.headers["x-dsec-principal"] as string | undefined;
    return this.parts.verifier.cached(token) ?? this.parts.verifier.verify(token);
  }
}

/** Answers with an error and lets a body that is still coming run out, so that the caller reads the answer. */
function refuse(req: IncomingMessage, res: ServerResponse, error: DsecError, contentType = ""): void {
  if (!res.destroyed) sendError(res, error, contentType);
  drain(req);
}
