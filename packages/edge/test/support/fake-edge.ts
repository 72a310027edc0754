// An edge in this process over a fake node: for its own logic.
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { CreateSandboxRequestSchema, EdgeCreateRequestSchema } from "@dsec/api";
import { pino } from "pino";
import type { NodeMeter } from "../../src/admission/node.ts";
import { type Clock, systemClock } from "../../src/clock.ts";
import { Edge } from "../../src/edge.ts";
import { parseSettings } from "../../src/settings.ts";
import { EdgeClient } from "./client.ts";
import { FakeNode } from "./fake-node.ts";
import { Signer } from "./principal.ts";

export class FakeClock implements Clock {
  wallShift = 0;
  shift = 0;
  monoMs(): number {
    return systemClock.monoMs() + this.shift;
  }
  wallMs(): number {
    return Date.now() + this.shift + this.wallShift;
  }
  /** Both clocks, as time does. */
  advance(ms: number): void {
    this.shift += ms;
  }
}

export class FakeMeter implements NodeMeter {
  size = { cpus: 2, memoryMb: 24_000, diskMb: 100_000 };
  availableMb = 20_000;
  use() {
    return { memoryAvailableMb: this.availableMb, cpuBusy: 0.25 };
  }
}

export const digest = `sha256:${"ab".repeat(32)}`;

export class FakeEdge {
  readonly dir = mkdtempSync(join(tmpdir(), "dsec-edge-"));
  readonly runDir = join(this.dir, "run");
  readonly clock = new FakeClock();
  readonly meter = new FakeMeter();
  node!: FakeNode;
  signer!: Signer;
  edge!: Edge;
  client!: EdgeClient;
  bootId = "boot";
  settings: Record<string, unknown> = {};
  private readonly clients: EdgeClient[] = [];

  static async start(settings: Record<string, unknown> = {}): Promise<FakeEdge> {
    const fake = new FakeEdge();
    fake.settings = settings;
    mkdirSync(fake.runDir);
    fake.node = new FakeNode(fake.runDir);
    fake.signer = await Signer.make(join(fake.dir, "key.json"));
    await fake.boot();
    fake.client = await fake.as();
    return fake;
  }

  async boot(): Promise<void> {
    const settings = parseSettings({
      edge: "e1",
      dataDir: this.dir,
      runDir: this.runDir,
      principalPublicKeyFile: join(this.dir, "key.json"),
      mklayer: "/bin/false",
      ...this.settings,
    });
    const layers = { has: async (d: string) => d === digest, remove: async () => {}, handleImport: async () => {} };
    this.edge = new Edge(settings, layers, pino({ level: process.env.EDGE_LOG ?? "silent" }), {
      clock: this.clock,
      meter: this.meter,
      bootId: this.bootId,
    });
    await this.edge.start();
  }

  async as(project = "root", role = "admin"): Promise<EdgeClient> {
    const client = new EdgeClient(join(this.runDir, "edge.sock"), await this.signer.token(project, role));
    this.clients.push(client);
    return client;
  }

  async restart(): Promise<void> {
    await this.edge.stop();
    await this.boot();
  }

  async stop(): Promise<void> {
    for (const client of this.clients) client.close();
    await this.edge.stop();
    this.node.close();
    rmSync(this.dir, { recursive: true, force: true });
  }

  async create(
    request: MessageInitShape<typeof CreateSandboxRequestSchema> = {},
    more: MessageInitShape<typeof EdgeCreateRequestSchema> = {},
  ) {
    const { sandbox } = await this.client.edge.edgeCreate(createRequest(request, more));
    if (!sandbox) throw new Error("no sandbox came back");
    return sandbox;
  }
}

export function createRequest(
  request: MessageInitShape<typeof CreateSandboxRequestSchema> = {},
  more: MessageInitShape<typeof EdgeCreateRequestSchema> = {},
) {
  return {
    request: { backend: { case: "container" as const, value: {} }, ...request },
    layers: [{ kind: "base", digest, name: "public/base@v1" }],
    argumentsDigest: "d1",
    ...more,
  } as MessageInitShape<typeof EdgeCreateRequestSchema>;
}

/** Waits until it holds; the guard is wide, for slow machines. */
export async function until(holds: () => boolean | Promise<boolean>, what: string): Promise<void> {
  const end = Date.now() + 20_000;
  while (!(await holds())) {
    if (Date.now() > end) throw new Error(`never came true: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
