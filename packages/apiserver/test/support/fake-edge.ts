// A small edge in memory, speaking the protos over a Unix socket: sandboxes are records, commands echo.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { create, toJsonString } from "@bufbuild/protobuf";
import type { ConnectRouter, HandlerContext } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import {
  CommandService,
  DsecError,
  type EdgeCreateRequest,
  EdgeService,
  type ErrorReason,
  LayerKind,
  LayerVersionSchema,
  NodeStatusSchema,
  randomBase32,
  type Sandbox,
  SandboxSchema,
  SandboxService,
  SandboxState,
} from "@dsec/api";
import { importJWK, type JWK, jwtVerify } from "jose";

export interface FakePrincipal {
  readonly sub: string;
  readonly project: string;
  readonly role: string;
}

interface Made {
  sandbox: Sandbox;
  cpu: number;
  memory: bigint;
}

export class FakeEdge {
  readonly edge: string;
  readonly socket: string;
  readonly made = new Map<string, Made>();
  readonly keys = new Map<string, { id: string; digest: string; attempt: bigint }>();
  readonly principals: FakePrincipal[] = [];
  readonly creates: EdgeCreateRequest[] = [];
  readonly heads: IncomingMessage["headers"][] = [];
  readonly dropped: string[][] = [];
  /** Reason with which creates are refused. */
  refuse: ErrorReason | undefined;
  accepting = true;
  maxSandboxes = 1_000_000;
  memoryMbCapacity = 1_000_000n;
  cpuCoresCapacity = 10_000;
  createMs = 0;
  /** Cuts the connection of a create: before or after it was made. */
  cutCreate: "before" | "after" | undefined;
  streamsOpen = 0;
  uploaded = 0;
  layerDigest = `sha256:${"a".repeat(64)}`;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #key: ReturnType<typeof importJWK>;
  #generation = 0n;

  constructor(edge: string, socket: string, publicKey: JWK) {
    this.edge = edge;
    this.socket = socket;
    this.#key = importJWK(publicKey, "EdDSA");
    const connect = connectNodeAdapter({ routes: (router) => this.#routes(router), acceptCompression: [] });
    this.#server = createServer({ keepAliveTimeout: 120_000 }, (request, response) => {
      this.heads.push(request.headers);
      if (request.url?.startsWith("/v1/")) this.#plain(request, response).catch(() => response.destroy());
      else connect(request, response);
    });
    this.#server.on("connection", (s: Socket) => this.#sockets.add(s.on("close", () => this.#sockets.delete(s))));
    this.#server.on("upgrade", (request, s: Socket, head: Buffer) => this.#upgrade(request, s, head));
  }

  start(): Promise<void> {
    return new Promise((resolve) => this.#server.listen(this.socket, resolve));
  }

  /** As it was when it was new, and listening. */
  async reset(): Promise<void> {
    for (const memory of [this.made, this.keys]) memory.clear();
    for (const list of [this.principals, this.creates, this.heads, this.dropped]) list.length = 0;
    this.refuse = undefined;
    this.cutCreate = undefined;
    this.accepting = true;
    this.createMs = 0;
    this.#generation++;
    if (!this.#server.listening) await this.start();
  }

  async stop(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.#server.closeAllConnections();
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  remove(id: string): void {
    this.made.delete(id);
    this.#generation++;
  }

  async #principal(token: string | null | undefined): Promise<FakePrincipal> {
    const { payload } = await jwtVerify(token ?? "", await this.#key, { algorithms: ["EdDSA"] });
    const principal = payload as unknown as FakePrincipal;
    this.principals.push(principal);
    return principal;
  }

  #routes(router: ConnectRouter): void {
    const check = (context: HandlerContext) => this.#principal(context.requestHeader.get("x-dsec-principal"));
    const own = async (id: string, context: HandlerContext): Promise<Made> => {
      const { project } = await check(context);
      const made = this.made.get(id);
      if (made === undefined || !`${made.sandbox.project}/`.startsWith(`${project}/`)) {
        throw new DsecError("SANDBOX_NOT_FOUND", `no sandbox ${id}`).toConnect();
      }
      return made;
    };
    router.service(EdgeService, {
      snapshot: async (_, context) => {
        await check(context);
        return { status: this.#status() };
      },
      askCreateKey: async (request, context) => {
        await check(context);
        const key = `${request.project}\n${request.createKey}`;
        const entry = this.keys.get(key) ?? { id: "", digest: "", attempt: 0n };
        if (entry.attempt > request.attempt) return { sandboxId: entry.id, supersededBy: entry.attempt };
        entry.attempt = request.attempt;
        this.keys.set(key, entry);
        return { sandboxId: entry.id, argumentsDiffer: entry.id !== "" && entry.digest !== request.argumentsDigest };
      },
      edgeCreate: async (request, context) => {
        await check(context);
        this.creates.push(request);
        if (this.refuse) throw new DsecError(this.refuse, `${this.edge} refuses`, { retryAfterMs: 250 }).toConnect();
        if (this.cutCreate === "before") return this.#cut();
        const sandbox = this.#make(request);
        if (this.createMs > 0) await new Promise((resolve) => setTimeout(resolve, this.createMs));
        sandbox.state = SandboxState.RUNNING;
        if (this.cutCreate === "after") return this.#cut();
        return { sandbox };
      },
      edgeList: async ({ filter }, context) => {
        await check(context);
        const project = filter?.project ?? "";
        const all = [...this.made.values()].map((made) => made.sandbox);
        const mine = all.filter(
          (s) => s.project === project || (filter?.recursive && s.project.startsWith(`${project}/`)),
        );
        mine.sort((a, b) => (a.sandboxId < b.sandboxId ? -1 : 1));
        const after = mine.filter((s) => s.sandboxId > (filter?.pageToken ?? ""));
        return { sandboxes: after.slice(0, filter?.pageSize || 100) };
      },
      dropLayer: async (request, context) => {
        await check(context);
        this.dropped.push(request.digests);
        return {};
      },
    });
    router.service(SandboxService, {
      getSandbox: async (request, context) => ({ sandbox: (await own(request.sandboxId, context)).sandbox }),
      stopSandbox: async (request, context) => {
        const { sandbox } = await own(request.sandboxId, context);
        this.remove(request.sandboxId);
        return { sandbox: { ...sandbox, state: SandboxState.STOPPED } };
      },
    });
    router.service(CommandService, {
      exec: async (request, context) => {
        await own(request.sandboxId, context);
        const shell = request.spec?.what.case === "shell" ? request.spec.what.value : "";
        return {
          result: { commandId: request.commandId, outcome: { exitCode: 0 }, stdout: { data: Buffer.from(shell) } },
        };
      },
      stream: async function* (this: void, request, context) {
        yield { event: { case: "started", value: { commandId: request.commandId } } };
        await new Promise((resolve) => context.signal.addEventListener("abort", resolve));
      },
    });
  }

  #make(request: EdgeCreateRequest): Sandbox {
    const create_ = request.request;
    if (create_ === undefined) throw new Error("no request");
    const key = `${create_.project}\n${create_.createKey}`;
    const entry = this.keys.get(key);
    if (create_.createKey !== "" && entry !== undefined) {
      if (entry.id !== "") {
        const sandbox = this.made.get(entry.id)?.sandbox;
        if (sandbox) return sandbox;
      }
      if (entry.attempt !== request.attempt)
        throw new DsecError("CREATE_SUPERSEDED", "a retry was answered").toConnect();
    }
    if (this.made.size >= this.maxSandboxes)
      throw new DsecError("CAPACITY_FULL", "full", { retryAfterMs: 250 }).toConnect();
    const sandbox = create(SandboxSchema, {
      sandboxId: `${this.edge}${randomBase32(20)}`,
      state: SandboxState.CREATING,
      project: create_.project,
      edge: this.edge,
      layers: request.layers.map(({ kind, digest, name }) => ({ kind, digest, name })),
    });
    const args = create_.backend.case === "container" ? create_.backend.value : undefined;
    this.made.set(sandbox.sandboxId, {
      sandbox,
      cpu: args?.cpuCoresRequest || 0.02,
      memory: args?.memoryRequestMb || 32n,
    });
    if (create_.createKey !== "") {
      this.keys.set(key, { id: sandbox.sandboxId, digest: request.argumentsDigest, attempt: request.attempt });
    }
    this.#generation++;
    return sandbox;
  }

  /** Ends every connection, as an edge that was killed would. */
  #cut(): never {
    for (const socket of this.#sockets) socket.destroy();
    throw new Error("cut");
  }

  #status() {
    const projects = new Map<string, { sandboxes: number; cpu: number; memory: bigint }>();
    for (const { sandbox, cpu, memory } of this.made.values()) {
      const use = projects.get(sandbox.project) ?? { sandboxes: 0, cpu: 0, memory: 0n };
      projects.set(sandbox.project, { sandboxes: use.sandboxes + 1, cpu: use.cpu + cpu, memory: use.memory + memory });
    }
    return create(NodeStatusSchema, {
      edge: this.edge,
      healthy: true,
      accepting: this.accepting,
      cpus: 2,
      cpuCoresCapacity: this.cpuCoresCapacity,
      memoryMbCapacity: this.memoryMbCapacity,
      maxSandboxes: this.maxSandboxes,
      sandboxes: this.made.size,
      backends: ["container"],
      generation: this.#generation,
      startedAtMs: 1n,
      projects: [...projects].map(([project, use]) => ({
        project,
        sandboxes: use.sandboxes,
        cpuCores: use.cpu,
        memoryMb: use.memory,
      })),
    });
  }

  async #plain(request: IncomingMessage, response: ServerResponse): Promise<void> {
    await this.#principal(request.headers["x-dsec-principal"] as string);
    const url = new URL(request.url ?? "", "http://x");
    if (url.pathname === "/v1/layers") {
      for await (const chunk of request) this.uploaded += (chunk as Buffer).length;
      const kind = { base: LayerKind.BASE, workspace: LayerKind.WORKSPACE, toolkit: LayerKind.TOOLKIT }[
        url.searchParams.get("kind") ?? ""
      ];
      const layer = create(LayerVersionSchema, {
        kind: kind ?? 0,
        digests: [this.layerDigest],
        dataBytes: 5n,
        config: { env: ["A=b"] },
      });
      response.writeHead(200, { "content-type": "application/json" }).end(toJsonString(LayerVersionSchema, layer));
      return;
    }
    if (request.method === "PUT" && url.searchParams.get("path") === "/refused") {
      response.writeHead(409, { "content-type": "application/json" }).end('{"early":true}');
      request.resume();
      return;
    }
    if (request.method === "PUT") {
      request.on("data", (chunk: Buffer) => {
        this.uploaded += chunk.length;
      });
      request.on("end", () => response.end("{}"));
      return;
    }
    let left = Number(url.searchParams.get("length") ?? 0);
    response.writeHead(200, { "content-type": "application/octet-stream" });
    this.streamsOpen++;
    response.on("close", () => this.streamsOpen--);
    const block = Buffer.alloc(256 * 1024, 7);
    const endless = url.searchParams.get("path") === "/endless";
    const more = (): void => {
      while (left > 0) {
        const part = block.subarray(0, Math.min(left, block.length));
        left -= part.length;
        if (!response.write(part)) return void response.once("drain", more);
      }
      if (url.searchParams.get("path") === "/cut") response.destroy();
      else if (!endless) response.end();
    };
    more();
  }

  #upgrade(request: IncomingMessage, socket: Socket, head: Buffer): void {
    this.heads.push(request.headers);
    socket.on("error", () => {});
    if (!request.url?.includes("/terminal")) {
      socket.end("HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}");
      return;
    }
    socket.write("HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n");
    socket.write(head);
    socket.pipe(socket);
  }
}
