// A platform of a bench's own: data directory, sockets, port and client settings apart from any that runs.
import { type ChildProcess, spawn } from "node:child_process";
import { createReadStream, createWriteStream, readdirSync, readFileSync } from "node:fs";
import { chmod, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { buildDebianBase } from "@dsec/cli/debian";
import { DSecClient } from "@dsec/libdsec";
import { progress } from "./document.ts";

const launcher = join(import.meta.dirname, "../../dsec");

export class BenchPlatform implements AsyncDisposable {
  readonly dir: string;
  readonly client: DSecClient;
  readonly #env: NodeJS.ProcessEnv;
  readonly #args: string[];

  private constructor(dir: string, client: DSecClient, env: NodeJS.ProcessEnv, args: string[]) {
    this.dir = dir;
    this.client = client;
    this.#env = env;
    this.#args = args;
  }

  static async start(...more: string[]): Promise<BenchPlatform> {
    const dir = await mkdtemp("/var/tmp/dsec-bench-");
    // The servers' user walks through it to its data directory.
    await chmod(dir, 0o711);
    const { DSEC_ENDPOINT: _endpoint, DSEC_API_KEY: _key, ...inherited } = process.env;
    const env = { ...inherited, XDG_CONFIG_HOME: join(dir, "config") };
    const args = ["--data-dir", join(dir, "data")];
    await dsec(env, "up", "--detach", "--port", String(await freePort()), ...args, ...more);
    const settings = JSON.parse(await readFile(join(dir, "config/dsec/config.json"), "utf8"));
    const client = new DSecClient({ endpoint: settings.endpoint, apiKey: settings.apiKey });
    return new BenchPlatform(dir, client, env, args);
  }

  /** A Debian base with python3, a workspace and a toolkit; `tar` is the base for rivals. */
  async environment(): Promise<{ tar: string }> {
    progress("making a base from Debian packages, a workspace and a toolkit");
    const tar = join(this.dir, "base.tar");
    const base = await buildDebianBase({ packages: ["python3-minimal"] });
    await pipeline(base, createWriteStream(tar));
    await this.client.layers.import({ kind: "base", name: "base", format: "tar", body: createReadStream(tar) });
    for (const kind of ["workspace", "toolkit"] as const) {
      const directory = join(this.dir, kind);
      await mkdir(join(directory, kind), { recursive: true });
      await writeFile(join(directory, kind, "README"), `the bench's ${kind}\n`);
      await this.client.layers.import({ kind, name: kind, directory });
    }
    return { tar };
  }

  /** Resident memory in MiB of every server process of this platform, by name and PID. */
  serverMemoryMiB(): Map<string, number> {
    const found = new Map<string, number>();
    for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
      try {
        const command = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
        if (!command.some((part) => part.startsWith(`${this.dir}/data/`))) continue;
        const rss = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8"));
        const program = command.find((part) => /apiserver|edge\/src|hostd/.test(part)) ?? "server";
        found.set(`${program.split("/").slice(-3).join("/")} ${pid}`, Number(rss?.[1] ?? 0) / 1024);
      } catch {
        // It ended between the two reads.
      }
    }
    return found;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.client[Symbol.asyncDispose]();
    await dsec(this.#env, "down", ...this.#args);
    await rm(this.dir, { recursive: true, force: true });
  }
}

/** What the bench's sandboxes are made of. */
export const environment = { containerImage: "base", workspace: "workspace", toolkits: ["toolkit"] };

function dsec(env: NodeJS.ProcessEnv, ...args: string[]): Promise<void> {
  return ended(spawn(launcher, args, { env, stdio: ["ignore", 2, "inherit"] }), `dsec ${args[0]}`);
}

function ended(child: ChildProcess, what: string): Promise<void> {
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code, signal) =>
      code === 0 ? resolve() : reject(new Error(`${what} ended with ${code ?? signal}`)),
    );
  });
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
