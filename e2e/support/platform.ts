// A whole platform for one test file, on directories of its own: real hostd, edges and apiservers that can be killed and
// started again one by one. Needs root, and the native programs built (`./dsec test` does that).
import { type ChildProcess, spawn } from "node:child_process";
import { generateKeyPairSync, randomBytes } from "node:crypto";
import { once } from "node:events";
import {
  chmodSync,
  chownSync,
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  writeFileSync,
} from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { DSecClient } from "@dsec/libdsec";
import { serverFlags, serverMalloc } from "../../packages/cli/src/up/settings.ts";

const root = join(import.meta.dirname, "../..");
const programs = join(root, "native/target", process.env.DSEC_TEST_PROFILE ?? "release");
/** Servers run as a user without a name, as they would as `dsec`. */
const serverUser = 64_123;
const slots = 500;
/** Ranges of IDs that platforms of tests take, away from those of `up`; each edge has one. */
const firstId = 1_000_000_000;
const idRanges = 96;

export interface PlatformOptions {
  /** Number of edges; default 1. */
  edges?: number;
  /** Number of apiservers; more than one needs databaseUrl. Default 1. */
  apiservers?: number;
  databaseUrl?: string;
  edgeSettings?: Record<string, unknown>;
}

interface Program {
  readonly name: string;
  readonly file: string;
  readonly args: string[];
  readonly asRoot: boolean;
  child?: ChildProcess;
}

export class Platform implements AsyncDisposable {
  readonly dir: string;
  readonly runDir: string;
  readonly edges: string[];
  readonly ports: number[];
  static #count = 0;
  readonly #programs = new Map<string, Program>();
  #clients: DSecClient[] = [];

  private constructor(dir: string, runDir: string, edges: string[], ports: number[]) {
    this.dir = dir;
    this.runDir = runDir;
    this.edges = edges;
    this.ports = ports;
  }

  static async start(options: PlatformOptions = {}): Promise<Platform> {
    if (process.getuid?.() !== 0) throw new Error("these tests need root");
    const dir = await mkdtemp("/var/tmp/dsec-test-");
    const tag = randomBytes(3).toString("hex");
    const edges = Array.from({ length: options.edges ?? 1 }, (_, i) => `t${tag}${String.fromCharCode(97 + i)}`);
    const ports = await Promise.all(Array.from({ length: options.apiservers ?? 1 }, freePort));
    const platform = new Platform(dir, `/run/dsec-test-${tag}`, edges, ports);
    try {
      platform.#prepare(options);
      for (const name of platform.#programs.keys()) await platform.startProgram(name);
    } catch (error) {
      await platform[Symbol.asyncDispose]();
      throw error;
    }
    return platform;
  }

  /** Admin of the root project. */
  get apiKey(): string {
    return readFileSync(join(this.dir, "first-key"), "utf8").trim();
  }

  endpoint(apiserver = 0): string {
    return `http://127.0.0.1:${this.ports[apiserver]}`;
  }

  /** A client of apiserver number `apiserver`, closed with the platform. */
  client(apiserver = 0, apiKey: string = this.apiKey): DSecClient {
    const client = new DSecClient({ endpoint: this.endpoint(apiserver), apiKey });
    this.#clients.push(client);
    return client;
  }

  /** "hostd-NAME", "edge-NAME" or "apiserver-N". */
  pid(name: string): number {
    const pid = this.#program(name).child?.pid;
    if (pid === undefined) throw new Error(`${name} does not run`);
    return pid;
  }

  /** kill -9, and its end. */
  async kill(name: string): Promise<void> {
    const { child } = this.#program(name);
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, "exit");
    child.kill("SIGKILL");
    await ended;
  }

  async startProgram(name: string): Promise<void> {
    const program = this.#program(name);
    const user = program.asRoot ? {} : { uid: serverUser, gid: serverUser };
    const log = join(this.dir, `${name}.log`);
    const stderr = openSync(log, "a");
    const child = spawn(program.file, program.args, {
      ...{ stdio: ["ignore", "pipe", stderr], cwd: root, env: { ...process.env, ...serverMalloc } },
      ...user,
    });
    closeSync(stderr);
    program.child = child;
    const ready = readyLine(child);
    const ended = once(child, "exit").then(() => {
      throw new Error(`${name} ended at its start:\n${readFileSync(log, "utf8").slice(-2000)}`);
    });
    await Promise.race([ready, ended]);
    ended.catch(() => {});
    child.stdout?.resume();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const client of this.#clients) await client[Symbol.asyncDispose]();
    const order = [...this.#programs.keys()].reverse();
    for (const name of order) await this.kill(name);
    for (const edge of this.edges) endSandboxes(edge);
    for (const edge of this.edges) await removeCgroups(edge);
    await rm(this.runDir, { recursive: true, force: true });
    await rm(this.dir, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
  }

  #program(name: string): Program {
    const program = this.#programs.get(name);
    if (!program) throw new Error(`no program ${name}: ${[...this.#programs.keys()].join(", ")}`);
    return program;
  }

  #add(program: Program): void {
    this.#programs.set(program.name, program);
  }

  #prepare(options: PlatformOptions): void {
    // Paths of the data directory are walked by the servers' user.
    chmodSync(this.dir, 0o755);
    const data = join(this.dir, "data");
    for (const name of ["", "layers", "staging", "edges", "secrets", ...this.edges.map((edge) => `edges/${edge}`)]) {
      mkdirSync(join(data, name), { recursive: true, mode: 0o700 });
      chownSync(join(data, name), serverUser, serverUser);
    }
    mkdirSync(this.runDir, { mode: 0o755 });
    const { privateKey, publicKey } = generateKeyPairSync("ed25519");
    const write = (name: string, value: unknown) => {
      const file = join(this.dir, name);
      writeFileSync(file, JSON.stringify(value), { mode: 0o600 });
      chownSync(file, serverUser, serverUser);
      return file;
    };
    const principalPrivateKeyFile = write("private.jwk", { ...privateKey.export({ format: "jwk" }), alg: "EdDSA" });
    const principalPublicKeyFile = write("public.jwk", { ...publicKey.export({ format: "jwk" }), alg: "EdDSA" });
    const database = options.databaseUrl ? { url: options.databaseUrl } : { pgliteDir: join(data, "pg") };
    // Platforms of other test processes run at the same time, and IDs tell hostd what is its own.
    let range = (process.pid * 4 + Platform.#count++ * 3) % (idRanges - this.edges.length);
    for (const edge of this.edges) {
      const runDir = join(this.runDir, edge);
      mkdirSync(runDir, { mode: 0o755 });
      chownSync(runDir, serverUser, serverUser);
      this.#add({
        name: `hostd-${edge}`,
        asRoot: true,
        file: join(programs, "hostd"),
        args: [
          ...["--edge", edge, "--run-dir", runDir, "--data-dir", data, "--edge-uid", String(serverUser)],
          ...["--uid-start", String(firstId + range++ * slots * 65_537), "--slots", String(slots)],
          ...["--bash", "/bin/bash-static"],
        ],
      });
      const config = write(`edge-${edge}.json`, {
        ...{ edge, dataDir: data, runDir, principalPublicKeyFile, mklayer: join(programs, "mklayer") },
        ...options.edgeSettings,
      });
      this.#add({
        name: `edge-${edge}`,
        asRoot: false,
        file: process.execPath,
        args: [...serverFlags, join(root, "packages/edge/src/main.ts"), "--config", config],
      });
    }
    const edges = this.edges.map((edge) => ({ edge, socket: join(this.runDir, edge, "edge.sock") }));
    // The first key is written there by the servers' user.
    chownSync(this.dir, serverUser, serverUser);
    this.ports.forEach((port, index) => {
      const config = write(`apiserver-${index}.json`, {
        ...{ host: "127.0.0.1", port, dataDir: data, edges, database, principalPrivateKeyFile, principalPublicKeyFile },
        firstKeyFile: join(this.dir, "first-key"),
      });
      this.#add({
        name: `apiserver-${index}`,
        asRoot: false,
        file: process.execPath,
        args: [...serverFlags, join(root, "packages/apiserver/src/main.ts"), "--config", config],
      });
    });
  }
}

function readyLine(child: ChildProcess): Promise<void> {
  return new Promise((resolve) => {
    let text = "";
    child.stdout?.setEncoding("utf8").on("data", (part: string) => {
      text += part;
      if (text.includes('"ready":true')) resolve();
    });
  });
}

/** Groups of one edge's slots, in every hierarchy. */
function cgroupsOf(edge: string): string[] {
  const base = "/sys/fs/cgroup";
  const parents = [base, ...readdirSync(base).map((name) => join(base, name))];
  return parents.map((parent) => join(parent, "dsec", edge)).filter((path) => existsSync(path));
}

function processesBelow(group: string): number[] {
  const found: number[] = [];
  for (const entry of readdirSync(group, { withFileTypes: true })) {
    const path = join(group, entry.name);
    if (entry.isDirectory()) found.push(...processesBelow(path));
    else if (entry.name === "cgroup.procs")
      found.push(...readFileSync(path, "utf8").split("\n").map(Number).filter(Boolean));
  }
  return found;
}

/** Aethers and inits outlive hostd, so a test ends them by the groups they are in. */
function endSandboxes(edge: string): void {
  for (let round = 0; round < 20; round++) {
    const pids = new Set(cgroupsOf(edge).flatMap(processesBelow));
    if (pids.size === 0) return;
    for (const pid of pids) {
      try {
        process.kill(pid, "SIGKILL");
      } catch {
        // It ended by itself.
      }
    }
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 50);
  }
}

async function removeCgroups(edge: string): Promise<void> {
  const remove = (path: string) => {
    for (const entry of readdirSync(path, { withFileTypes: true }))
      if (entry.isDirectory()) remove(join(path, entry.name));
    rmdirSync(path);
  };
  for (const path of cgroupsOf(edge)) {
    for (let attempt = 0; ; attempt++) {
      try {
        remove(path);
        break;
      } catch (error) {
        if (attempt === 40) throw error;
        await sleep(50);
      }
    }
  }
}

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer().once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      server.close(() => resolve(typeof address === "object" && address ? address.port : 0));
    });
  });
}
