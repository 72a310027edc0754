// A private hostd and edge on directories of their own, as root; stop() leaves nothing. The programs are built before.
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { ContainerArgsSchema, type CreateSandboxRequestSchema } from "@dsec/api";
import { EdgeClient } from "./client.ts";
import { until } from "./fake-edge.ts";
import { Signer } from "./principal.ts";

const root = join(import.meta.dirname, "../../../..");
const native = join(root, "native/target", process.env.DSEC_TEST_PROFILE ?? "debug");
const mklayer = join(native, "mklayer");
const user = 64_124;
const slots = 64;

/** Why real sandboxes cannot be started here; "" where they can. */
export function cannotRun(): string {
  if (process.getuid?.() !== 0) return "needs root";
  for (const program of ["hostd", "mklayer"]) {
    if (!existsSync(join(native, program))) return `${program} is not built`;
  }
  return existsSync("/usr/bin/busybox") && existsSync("/bin/bash-static") ? "" : "needs busybox-static and bash-static";
}

export class RealNode {
  readonly name = `t${Math.random().toString(36).slice(2, 8)}`;
  readonly runDir = mkdtempSync("/run/dsec-test-");
  readonly dataDir = mkdtempSync("/var/tmp/dsec-test-");
  readonly log: string[] = [];
  private readonly uidStart = 300_000_000 + Math.floor(Math.random() * 150) * slots * 65_537;
  private hostd: ChildProcess | undefined;
  private edge: ChildProcess | undefined;
  private readonly clients: EdgeClient[] = [];
  private settings: Record<string, unknown> = {};
  signer!: Signer;
  client!: EdgeClient;
  /** Digest of a base of busybox. */
  base = "";

  static async start(settings: Record<string, unknown> = {}): Promise<RealNode> {
    const node = new RealNode();
    node.settings = settings;
    try {
      const below = ["layers", "staging", "edges", `edges/${node.name}`].map((dir) => join(node.dataDir, dir));
      for (const dir of below) mkdirSync(dir);
      for (const dir of [node.runDir, node.dataDir, ...below]) {
        chownSync(dir, user, user);
        chmodSync(dir, 0o755);
      }
      node.signer = await Signer.make(join(node.dataDir, "principal.json"));
      chmodSync(join(node.dataDir, "principal.json"), 0o644);
      node.startHostd();
      await node.startEdge();
      node.client = await node.as();
      node.base = await node.importBase();
      return node;
    } catch (error) {
      await node.stop();
      throw new Error(`${(error as Error).message}\n${node.log.slice(-30).join("\n")}`, { cause: error });
    }
  }

  get edgePid(): number {
    return this.edge?.pid ?? 0;
  }

  startHostd(): void {
    const words = `--edge ${this.name} --run-dir ${this.runDir} --data-dir ${this.dataDir} --edge-uid ${user} --uid-start ${this.uidStart} --slots ${slots} --bash /bin/bash-static`;
    this.hostd = this.spawn(join(native, "hostd"), words.split(" "), 0);
  }

  async startEdge(): Promise<void> {
    const file = join(this.dataDir, "edge.json");
    const settings = {
      edge: this.name,
      dataDir: this.dataDir,
      runDir: this.runDir,
      principalPublicKeyFile: join(this.dataDir, "principal.json"),
      mklayer,
      ...this.settings,
    };
    writeFileSync(file, JSON.stringify(settings));
    this.edge = this.spawn(process.execPath, [join(root, "packages/edge/src/main.ts"), "--config", file], user);
    if (!this.edge.stdout) throw new Error("no stdout");
    const lines = createInterface({ input: this.edge.stdout });
    const ended = once(this.edge, "exit").then(() => {
      throw new Error(`the edge ended before it was ready:\n${this.log.slice(-20).join("\n")}`);
    });
    ended.catch(() => {});
    await Promise.race([once(lines, "line"), ended]);
    await until(() => existsSync(join(this.runDir, "hostd.sock")), "hostd's socket");
  }

  async killEdge(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
    await end(this.edge, signal);
    this.edge = undefined;
  }

  async killHostd(): Promise<void> {
    await end(this.hostd, "SIGKILL");
    this.hostd = undefined;
  }

  async as(project = "root", role = "admin"): Promise<EdgeClient> {
    const client = new EdgeClient(join(this.runDir, "edge.sock"), await this.signer.token(project, role));
    this.clients.push(client);
    return client;
  }

  /** A sandbox on the busybox base; its ID. */
  async create(
    args: Omit<MessageInitShape<typeof ContainerArgsSchema>, "$typeName"> = {},
    request: MessageInitShape<typeof CreateSandboxRequestSchema> = {},
  ) {
    const { sandbox } = await this.client.edge.edgeCreate({
      request: { ...request, backend: { case: "container", value: create(ContainerArgsSchema, args) } },
      layers: [{ kind: "base", digest: this.base, name: "public/busybox@v1" }],
      argumentsDigest: "d",
    });
    if (!sandbox) throw new Error("no sandbox");
    return sandbox;
  }

  /** Ends every sandbox and both servers, and removes all that was theirs. */
  async stop(): Promise<void> {
    if (this.edge?.exitCode === null && this.client) {
      const { sandboxes } = await this.client.sandboxes.listSandboxes({ recursive: true, pageSize: 1000 });
      await Promise.allSettled(sandboxes.map(({ sandboxId }) => this.client.sandboxes.deleteSandbox({ sandboxId })));
    }
    for (const client of this.clients) client.close();
    await this.killEdge("SIGTERM");
    await end(this.hostd, "SIGTERM");
    await this.sweep();
    rmSync(this.runDir, { recursive: true, force: true });
    await until(() => removed(this.dataDir), "the data directory's removal");
  }

  /** What is left of the cgroups: processes of this edge alone. */
  leftProcesses(): number[] {
    const pids = new Set<number>();
    const visit = (dir: string): void => {
      try {
        for (const pid of readFileSync(join(dir, "cgroup.procs"), "utf8").split("\n"))
          if (pid !== "") pids.add(Number(pid));
        for (const entry of readdirSync(dir, { withFileTypes: true }))
          if (entry.isDirectory()) visit(join(dir, entry.name));
      } catch {
        // A group that went meanwhile holds nothing.
      }
    };
    for (const dir of this.cgroups()) visit(dir);
    return [...pids];
  }

  private async sweep(): Promise<void> {
    for (const pid of this.leftProcesses()) process.kill(pid, "SIGKILL");
    await until(() => this.leftProcesses().length === 0, "the end of the sandboxes' processes");
    for (const dir of this.cgroups()) {
      const below = readdirSync(dir, { recursive: true, withFileTypes: true }).filter((entry) => entry.isDirectory());
      const paths = below.map((entry) => join(entry.parentPath, entry.name)).sort((a, b) => b.length - a.length);
      for (const path of [...paths, dir]) rmdirSync(path);
    }
  }

  private cgroups(): string[] {
    const base = "/sys/fs/cgroup";
    const places = [join(base, "dsec", this.name)];
    for (const name of readdirSync(base)) places.push(join(base, name, "dsec", this.name));
    return places.filter((place) => existsSync(place));
  }

  private async importBase(): Promise<string> {
    const tree = mkdtempSync(join(this.dataDir, "base-"));
    execFileSync("sh", ["-ec", makeBase, "sh", tree]);
    const tar = execFileSync("tar", ["-C", tree, "--owner=0", "--group=0", "-cf", "-", "."], { maxBuffer: 1 << 28 });
    rmSync(tree, { recursive: true });
    const answer = await this.client.http("POST", "/v1/layers?kind=base&name=busybox&format=tar", tar);
    if (answer.status !== 200) throw new Error(`the base was refused: ${answer.body.toString()}`);
    return (JSON.parse(answer.body.toString()) as { digests: string[] }).digests[0] as string;
  }

  private spawn(program: string, args: string[], uid: number): ChildProcess {
    const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"], uid, gid: uid, cwd: "/" });
    child.stderr.setEncoding("utf8").on("data", (text: string) => this.log.push(text));
    if (uid === 0) child.stdout.resume();
    child.on("error", (error) => this.log.push(String(error)));
    return child;
  }
}

const makeBase = `
cd "$1"
mkdir -p bin usr/bin usr/sbin sbin etc root tmp var/tmp dev proc sys home/user run
cp /usr/bin/busybox bin/busybox
for name in $(busybox --list); do [ "$name" = busybox ] || ln -s busybox "bin/$name"; done
cp /bin/bash-static bin/bash
printf 'root:x:0:0:root:/root:/bin/sh\\nuser:x:1000:1000::/home/user:/bin/sh\\n' > etc/passwd
printf 'root:x:0:\\nuser:x:1000:\\n' > etc/group
chown 1000:1000 home/user
chmod 1777 tmp var/tmp
`;

async function end(child: ChildProcess | undefined, signal: NodeJS.Signals): Promise<void> {
  if (!child || child.exitCode !== null || child.signalCode !== null) return;
  const exit = once(child, "exit");
  child.kill(signal);
  const late = setTimeout(() => child.kill("SIGKILL"), 15_000);
  await exit;
  clearTimeout(late);
}

function removed(dir: string): boolean {
  try {
    rmSync(dir, { recursive: true, force: true });
    return true;
  } catch {
    return false;
  }
}
