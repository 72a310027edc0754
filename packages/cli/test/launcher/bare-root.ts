// A Debian in which nothing is installed, entered as one enters a chroot: namespaces for mounts and processes, all else shared.
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import {
  appendFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { aptFiles, aptOptions, dumpOfThisMachine } from "../../src/debian/apt-options.ts";
import { readSources } from "../../src/debian/sources.ts";
import { endSandboxes, processesOf } from "../../src/up/ending.ts";
import { allPids } from "../../src/up/processes.ts";
import { readRanges } from "../../src/up/ranges.ts";
import { root as checkout, run } from "./support.ts";

/** Where the copy of the checkout is, inside. */
const place = "/srv/dsec";

/** How this machine's clients reach their packages: what is there is copied to the same place inside. */
const settings = [
  "/etc/resolv.conf",
  "/etc/hosts",
  "/etc/pip.conf",
  "/etc/npmrc",
  "/usr/local/etc/npmrc",
  "/usr/local/share/ca-certificates",
  "/etc/ssl/certs/ca-certificates.crt",
];
const settingsOfHome = [".npmrc", ".config/pip", ".pip", ".cargo/config.toml", ".cargo/config"];
const variables =
  /^(SSL_CERT_(FILE|DIR)|NODE_EXTRA_CA_CERTS|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|PIP_\w+|NPM_CONFIG_\w+|CARGO_(HTTP|NET|SOURCE|REGISTRY|REGISTRIES)_\w+|(HTTPS?|ALL|NO|FTP)_PROXY|(https?|all|no|ftp)_proxy)$/;

/** Mounts what a chroot needs and goes in. $1: the root; the rest is the command. */
const enter = `
set -e
root=$1; shift
mount -t proc proc "$root/proc"
for name in sys dev; do mount --rbind "/$name" "$root/$name"; mount --make-rslave "$root/$name"; done
for name in tmp run; do mount -t tmpfs -o mode=1777 tmpfs "$root/$name"; done
chmod 755 "$root/run"
exec chroot "$root" env -i "$@"`;

export class BareRoot implements AsyncDisposable {
  readonly dir: string;
  readonly root: string;
  readonly #log: string;
  readonly #edges = new Set<string>();
  #child: ChildProcess | undefined;

  private constructor() {
    // A few gigabytes, so never in /tmp, which may be in memory.
    this.dir = mkdtempSync(join(process.env["TMPDIR"] ?? "/var/tmp", "dsec-bare-"));
    this.root = join(this.dir, "root");
    this.#log = join(this.dir, "log");
  }

  /** Debian's essential packages and apt, this machine's settings, and the checkout's tracked files. */
  static async make(suite: string): Promise<BareRoot> {
    const bare = new BareRoot();
    try {
      await bare.#debootstrap(suite);
      bare.#copySettings();
      mkdirSync(join(bare.root, place), { recursive: true });
      const files = execFileSync("git", ["-C", checkout, "ls-files", "-z"]);
      const there = files
        .toString()
        .split("\0")
        .filter((name) => name !== "" && existsSync(join(checkout, name)));
      for (const name of there) cpSync(join(checkout, name), join(bare.root, place, name), { verbatimSymlinks: true });
      return bare;
    } catch (error) {
      await bare[Symbol.asyncDispose]();
      throw error;
    }
  }

  async #debootstrap(suite: string): Promise<void> {
    const own = /^VERSION_CODENAME=(\w+)/m.exec(readFileSync("/etc/os-release", "utf8"))?.[1] ?? suite;
    const sources = readSources("/", own, suite);
    const options = aptOptions(dumpOfThisMachine());
    const write = (name: string, text: string) => {
      writeFileSync(join(this.dir, name), text, { mode: 0o600 });
      return join(this.dir, name);
    };
    const mirrors = [
      ...(sources.list ? [write("sources.list", sources.list)] : []),
      ...(sources.deb822 ? [write("debian.sources", sources.deb822)] : []),
    ];
    const hooks = aptFiles(options).map(
      (file) => `--setup-hook=mkdir -p "$1${dirname(file)}" && cp -aL "${file}" "$1${dirname(file)}/"`,
    );
    const apt = `--aptopt=${write("apt.conf", options.map((line) => `${line}\n`).join(""))}`;
    const how = ["--mode=root", "--variant=apt", "--format=directory", "--dpkgopt=force-unsafe-io", apt, ...hooks];
    const { status, stderr } = await run("mmdebstrap", [...how, suite, this.root, ...mirrors], {
      ...process.env,
      TMPDIR: this.dir,
    });
    if (status !== 0) throw new Error(`mmdebstrap failed: ${stderr.slice(-2000)}`);
  }

  #copySettings(): void {
    const copy = (from: string, to: string) => {
      if (!existsSync(from)) return;
      mkdirSync(dirname(join(this.root, to)), { recursive: true });
      cpSync(from, join(this.root, to), { recursive: true, dereference: true });
    };
    for (const file of settings) copy(file, file);
    for (const file of settingsOfHome) copy(join(homedir(), file), join("/root", file));
  }

  /** As a login on such a machine has it: this machine's settings for package clients, and little else. */
  #environment(): string[] {
    const all = { PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", HOME: "/root" };
    const mine = Object.entries(process.env).filter(
      ([name, value]) => variables.test(name) && !(value?.startsWith("/") && !existsSync(join(this.root, value))),
    );
    return [...Object.entries(all), ...mine].map(([name, value]) => `${name}=${value}`);
  }

  /** Runs shell in the checkout's copy, as process 1 of a namespace that ends with it. @returns its output */
  async run(script: string, withinMs: number): Promise<string> {
    const shell = ["sh", "-c", enter, "sh", this.root, ...this.#environment()];
    const child = spawn(
      // Should this process be killed, the namespace goes too.
      "setpriv",
      [
        ...["--pdeathsig=KILL", "unshare"],
        ...["--mount", "--pid", "--fork", "--kill-child", "--propagation=private", ...shell],
        ...["sh", "-c", `cd ${place}\n${script}`],
      ],
      { stdio: ["ignore", "pipe", "pipe"], cwd: "/" },
    );
    this.#child = child;
    const take = (data: Buffer) => appendFileSync(this.#log, data);
    child.stdout.on("data", take);
    child.stderr.on("data", take);
    const timer = setTimeout(() => {
      take(Buffer.from(`\nended after ${withinMs / 1000} s\n`));
      // What it could not do, the end after this says again.
      this.end().catch(() => {});
    }, withinMs);
    const notes = setInterval(() => this.#noteEdges(), 2000);
    await new Promise((resolve) => child.once("close", resolve));
    clearTimeout(timer);
    clearInterval(notes);
    await this.end();
    return this.log;
  }

  /** All that was printed inside. */
  get log(): string {
    return existsSync(this.#log) ? readFileSync(this.#log, "utf8") : "";
  }

  /** Ends every process inside; what it has in the machine's cgroups goes too. @throws when something still uses the root */
  async end(): Promise<void> {
    this.#noteEdges();
    // Its child is process 1 inside, with which the whole namespace ends.
    if (this.#child?.exitCode === null && this.#child.signalCode === null) this.#child.kill("SIGKILL");
    for (let tries = 0; ; tries += 1) {
      const users = allPids().filter((pid) => this.#uses(pid));
      if (users.length === 0) break;
      if (tries > 300) throw new Error(`${this.root} is still used by the processes ${users.join(", ")}`);
      await sleep(100);
    }
    for (const edge of this.#edges) await removeCgroups(edge);
  }

  /** Notes the names of the edges that are inside now: their cgroups are the machine's, and outlive a namespace that is killed. */
  #noteEdges(): void {
    if (this.#child?.exitCode !== null || this.#child.signalCode !== null) return;
    const namespace = linkOf(`/proc/${this.#child.pid}/ns/pid_for_children`);
    if (namespace === "" || namespace === linkOf("/proc/self/ns/pid")) return;
    for (const pid of allPids().filter((one) => linkOf(`/proc/${one}/ns/pid`) === namespace)) {
      // Before it has changed its root, the first process still sees the machine's own ranges.
      const inside = linkOf(`/proc/${pid}/root`).startsWith(this.dir);
      const texts = [
        textOf(`/proc/${pid}/cmdline`).matchAll(/--edge\0(\w+)/g),
        (inside ? textOf(`/proc/${pid}/root/run/dsec/ranges.json`) : "").matchAll(/"edge": "(\w+)"/g),
      ];
      for (const [, edge] of texts.flatMap((matches) => [...matches])) if (edge) this.#edges.add(edge);
    }
  }

  #uses(pid: number): boolean {
    // hostd's own root is not below ours for the link, but what is mounted there is.
    return linkOf(`/proc/${pid}/root`).startsWith(this.dir) || textOf(`/proc/${pid}/mountinfo`).includes(this.dir);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.end();
    // Only now: nothing is mounted below it anywhere, so nothing but the root itself is removed.
    rmSync(this.dir, { recursive: true, force: true });
  }
}

/** Of an edge that has ended: nothing is removed where a process is left. */
async function removeCgroups(edge: string): Promise<void> {
  const others = readRanges().some((range) => range.edge === edge);
  if (others || processesOf(edge).length > 0) throw new Error(`the edge ${edge} is not of this root, or lives on`);
  for (let tries = 0; ; tries += 1) {
    const { left } = await endSandboxes(edge);
    if (left.length === 0) return;
    // The kernel lets the dead go in its own time.
    if (tries > 50) throw new Error(`these cgroups cannot be removed: ${left.join(", ")}`);
    await sleep(100);
  }
}

function linkOf(file: string): string {
  try {
    return readlinkSync(file);
  } catch {
    return "";
  }
}

function textOf(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return "";
  }
}
