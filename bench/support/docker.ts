// dockerd as a rival: its own data root, socket and containerd, no bridge, no rules; ended by PID.
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { createReadStream, existsSync, readdirSync, rmdirSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { request } from "node:http";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { progress } from "./document.ts";

const run = promisify(execFile);
const dockerd = "/usr/sbin/dockerd";
const client = "/usr/bin/docker";

export class Docker implements AsyncDisposable {
  readonly #dir: string;
  readonly #daemon: ChildProcess;
  readonly #socket: string;
  readonly #cgroupsBefore = dockerCgroups();

  private constructor(dir: string, daemon: ChildProcess) {
    this.#dir = dir;
    this.#daemon = daemon;
    this.#socket = join(dir, "docker.sock");
  }

  /** Installs and starts it; undefined, with the reason on stderr, where it cannot run. */
  static async start(): Promise<Docker | undefined> {
    try {
      await install();
      const dir = await mkdtemp("/var/tmp/dsec-bench-docker-");
      // An empty file, so that the machine's own settings of docker have no say.
      await writeFile(join(dir, "daemon.json"), "{}");
      const daemon = spawn(
        dockerd,
        [
          ...["--data-root", join(dir, "data"), "--exec-root", join(dir, "exec"), "--pidfile", join(dir, "pid")],
          ...["--host", `unix://${join(dir, "docker.sock")}`, "--config-file", join(dir, "daemon.json")],
          ...["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-masq=false", "--log-level=error"],
        ],
        { stdio: ["ignore", "ignore", "ignore"] },
      );
      const docker = new Docker(dir, daemon);
      await docker.#ready();
      return docker;
    } catch (error) {
      progress(`docker is left out: ${error instanceof Error ? error.message : String(error)}`);
      return undefined;
    }
  }

  /** Makes the image `name` from a tar of a root file system. */
  async importImage(tar: string, name: string): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      const call = request(
        {
          socketPath: this.#socket,
          method: "POST",
          path: `/images/create?fromSrc=-&repo=${name}`,
          headers: { "content-type": "application/x-tar" },
        },
        (reply) => {
          let text = "";
          reply.setEncoding("utf8").on("data", (part: string) => {
            text += part;
          });
          reply.on("end", () => (text.includes('"error"') ? reject(new Error(text)) : resolve()));
        },
      );
      call.on("error", reject);
      createReadStream(tar).pipe(call);
    });
  }

  /** Create + command + stop, as its own client does it. */
  async runOnce(image: string, ...command: string[]): Promise<void> {
    await this.docker("run", "--rm", "--net", "none", image, ...command);
  }

  async docker(...args: string[]): Promise<string> {
    const { stdout } = await run(client, ["--host", `unix://${this.#socket}`, ...args], { maxBuffer: 2 ** 26 });
    return stdout;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const ended = new Promise((resolve) => this.#daemon.once("exit", resolve));
    if (this.#daemon.exitCode === null) {
      this.#daemon.kill("SIGTERM");
      await Promise.race([ended, sleep(20_000)]);
    }
    for (const cgroup of this.#newCgroups()) rmdirSync(cgroup);
    await rm(this.#dir, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  }

  #newCgroups(): string[] {
    return dockerCgroups().filter((path) => !this.#cgroupsBefore.includes(path));
  }

  async #ready(): Promise<void> {
    for (let i = 0; i < 300; i++) {
      if (this.#daemon.exitCode !== null) throw new Error(`dockerd ended with ${this.#daemon.exitCode}`);
      if (existsSync(this.#socket)) {
        const answer = await this.docker("version").catch(() => undefined);
        if (answer) return;
      }
      await sleep(100);
    }
    throw new Error("dockerd did not answer within 30 s");
  }
}

async function install(): Promise<void> {
  if (existsSync(dockerd) && existsSync(client)) return;
  progress("installing docker.io from Debian, as the rival");
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive", RUNLEVEL: "1" };
  const apt = ["-o", "DPkg::Lock::Timeout=300", "-qq"];
  await run("apt-get", [...apt, "update"], { env });
  // Debian's maintainer scripts would start the daemon; policy-rc.d says no, and is put back as it was.
  const policy = "/usr/sbin/policy-rc.d";
  const own = !existsSync(policy);
  if (own) await run("sh", ["-c", `printf '#!/bin/sh\\nexit 101\\n' > ${policy} && chmod 755 ${policy}`]);
  try {
    await run("apt-get", [...apt, "install", "-y", "--no-install-recommends", "docker.io"], {
      env,
      maxBuffer: 2 ** 26,
    });
  } finally {
    if (own) await rm(policy, { force: true });
  }
}

/** The daemon's own groups, empty once its containers are gone. */
function dockerCgroups(): string[] {
  const root = "/sys/fs/cgroup";
  const parents = [root, ...readdirSync(root, { withFileTypes: true }).map((entry) => join(root, entry.name))];
  return parents.map((parent) => join(parent, "docker")).filter((path) => existsSync(path));
}
