// The edge's HTTP/1.1 server on its Unix socket.
import { chmodSync, rmSync } from "node:fs";
import http, { type IncomingMessage, type ServerResponse } from "node:http";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import {
  CommandService,
  DsecError,
  EdgeService,
  FileService,
  randomBase32,
  SandboxService,
  SessionService,
} from "@dsec/api";
import { type PrincipalVerifier, requireRole } from "../auth/principal.ts";
import { handleStream, streamPath } from "../commands/stream.ts";
import type { Attacher } from "../lifecycle/attach.ts";
import type { Core } from "../lifecycle/core.ts";
import type { Creator } from "../lifecycle/create.ts";
import type { Ender } from "../lifecycle/end.ts";
import { commandService } from "../services/command-service.ts";
import { edgeService } from "../services/edge-service.ts";
import { fileService } from "../services/file-service.ts";
import { sandboxService } from "../services/sandbox-service.ts";
import { sessionService } from "../services/session-service.ts";
import { handleBody, noSuch, split } from "./bodies.ts";
import { sendError } from "./errors.ts";
import { makeInterceptor } from "./interceptor.ts";
import { Terminals } from "./terminals.ts";

const largestMessage = 4 * 1024 * 1024;
/** Longer than the clients', so that none of them writes to a connection that is being closed. */
const keepAliveMs = 600_000;
const requestIdForm = /^[A-Za-z0-9_.:-]{1,128}$/;

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
  private readonly path: string;

  constructor(parts: Parts, path: string) {
    this.parts = parts;
    this.path = path;
    this.terminals = new Terminals(parts.core, parts.verifier);
    const { core, ender, creator, layers, verifier } = parts;
    const connect = connectNodeAdapter({
      routes: (router) => {
        router.service(SandboxService, sandboxService(core, ender));
        router.service(CommandService, commandService(core));
        router.service(SessionService, sessionService(core));
        router.service(FileService, fileService(core));
        router.service(EdgeService, edgeService(core, creator, layers));
      },
      interceptors: [makeInterceptor(verifier, core.log)],
      grpc: false,
      grpcWeb: false,
      acceptCompression: [],
      readMaxBytes: largestMessage,
      fallback: (req, res) => {
        const known = new DsecError("NO_SUCH_METHOD", `${req.method} ${JSON.stringify(req.url)} is not known here`);
        sendError(res as ServerResponse, known);
      },
    });
    this.server = http.createServer({ highWaterMark: 1024 * 1024, keepAliveTimeout: keepAliveMs }, (req, res) => {
      this.handle(req, res, connect);
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

  private handle(req: IncomingMessage, res: ServerResponse, connect: http.RequestListener): void {
    const given = req.headers["x-request-id"];
    const requestId = typeof given === "string" && requestIdForm.test(given) ? given : randomBase32(16);
    req.headers["x-request-id"] = requestId;
    res.setHeader("x-request-id", requestId);
    const url = req.url ?? "";
    if (url.startsWith("/v1/")) {
      void this.plain(req, res, requestId);
    } else if (split(url)[0] === streamPath) {
      void handleStream(this.parts.core, req, res, () => this.principal(req));
    } else if (Number(req.headers["content-length"] ?? 0) > largestMessage) {
      refuse(req, res, new DsecError("TOO_LARGE", `the message is larger than ${largestMessage} bytes`));
    } else {
      connect(req, res);
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

  private principal(req: IncomingMessage) {
    return this.parts.verifier.verify(req.headers["x-dsec-principal"] as string | undefined);
  }
}

const mostDrained = 64 * 1024 * 1024;

/** Answers with an error and lets a body that is still coming run out, so that the caller reads the answer. */
function refuse(req: IncomingMessage, res: ServerResponse, error: DsecError): void {
  if (!req.complete) {
    let drained = 0;
    req.on("data", (chunk: Buffer) => {
      drained += chunk.length;
      if (drained > mostDrained) req.destroy();
    });
    req.resume();
  }
  sendError(res, error);
}
