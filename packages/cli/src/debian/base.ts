// A base layer from Debian packages: mmdebstrap with this machine's own apt sources, as a stream of tar.
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { PassThrough, type Readable } from "node:stream";
import { DsecError, printable } from "@dsec/api";
import { aptFiles, aptOptions, dumpOfThisMachine } from "./apt-options.ts";
import { readSources } from "./sources.ts";

export interface DebianBaseOptions {
  /** "bookworm", "trixie", …; this machine's own where it is left out. */
  readonly suite?: string;
  /** On top of the essential packages and apt. */
  readonly packages: readonly string[];
  /** Use this machine's apt sources; there is no other way. */
  readonly mirrorsFromHost?: true;
  /** A line of mmdebstrap's, for people. */
  readonly onProgress?: (line: string) => void;
  readonly signal?: AbortSignal;
}

/**
 * Starts the build and gives the tar, which begins to flow when all is installed. A failure destroys the stream with a
 * DsecError; destroying the stream, or the signal, ends the build. Throws NOT_SUPPORTED where mmdebstrap is missing.
 */
export async function buildDebianBase(options: DebianBaseOptions): Promise<Readable> {
  const { packages, signal, onProgress } = options;
  for (const name of packages) {
    if (!/^[a-z0-9][a-z0-9+.-]*(:[a-z0-9]+)?(=[\w.+~:-]+)?$/.test(name)) {
      throw new DsecError("INVALID_ARGUMENT", `"${printable(name)}" is no name of a Debian package`);
    }
  }
  requireProgram("mmdebstrap");
  const hostSuite = await suiteOfThisMachine();
  const suite = options.suite ?? hostSuite;
  if (!/^[a-z][a-z0-9-]*$/.test(suite))
    throw new DsecError("INVALID_ARGUMENT", `"${printable(suite)}" is no name of a suite`);
  signal?.throwIfAborted();
  // /tmp may be small and in memory.
  const temporary = process.env["TMPDIR"] ?? "/var/tmp";
  const scratch = await mkdtemp(join(temporary, "dsec-debian-"));
  // mmdebstrap does not remove all of its own when it is ended. Its user for downloads must get in.
  const work = `${scratch}.work`;
  const clean = async () => {
    // Children of one that was ended may be at work a moment longer.
    for (const dir of [scratch, work]) await rm(dir, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
  };
  try {
    await mkdir(work, { mode: 0o755 });
    const args = await prepare(scratch, hostSuite, suite, packages);
    return run(args, work, clean, onProgress, signal);
  } catch (error) {
    await clean();
    throw error;
  }
}

/** Writes what mmdebstrap reads into `scratch`; its arguments. */
async function prepare(
  scratch: string,
  hostSuite: string,
  suite: string,
  packages: readonly string[],
): Promise<string[]> {
  const sources = readSources("/", hostSuite, suite);
  const mirrors: string[] = [];
  for (const [name, text] of [["sources.list", sources.list] as const, ["debian.sources", sources.deb822] as const]) {
    if (text === "") continue;
    mirrors.push(join(scratch, name));
    await writeFile(join(scratch, name), text, { mode: 0o600 });
  }
  if (mirrors.length === 0) {
    throw new DsecError("NOT_SUPPORTED", "this machine has no apt sources in /etc/apt to make a Debian base from");
  }
  const apt = aptOptions(dumpOfThisMachine());
  await writeFile(join(scratch, "apt.conf"), apt.map((line) => `${line}\n`).join(""), { mode: 0o600 });
  const copied = aptFiles(apt);
  const hooks = copied.map(
    (file) => `--setup-hook=mkdir -p "$1${parentOf(file)}" && cp -aL "${file}" "$1${parentOf(file)}/"`,
  );
  if (`${sources.list}${sources.deb822}`.includes("file:")) {
    const automount = "/usr/share/mmdebstrap/hooks/file-mirror-automount";
    if (existsSync(automount)) hooks.push(`--hook-dir=${automount}`);
  }
  return [
    ...(process.getuid?.() === 0 ? ["--mode=root"] : []),
    ...["--variant=apt", "--format=tar", `--aptopt=${join(scratch, "apt.conf")}`],
    // What is unpacked here need not survive a power cut.
    "--dpkgopt=force-unsafe-io",
    ...(packages.length > 0 ? [`--include=${packages.join(",")}`] : []),
    ...hooks,
    // All is read by then; so nothing stays, even when this process is killed.
    `--setup-hook=rm -rf ${quoted(scratch)}`,
    `--customize-hook=${tidy(copied)}`,
    suite,
    "-",
    ...mirrors,
  ];
}

/** Shell that takes back what only this machine has: credentials, proxies, names; and what differs from run to run. */
function tidy(copied: readonly string[]): string {
  return [
    "set -e",
    'rm -f "$1/etc/apt/apt.conf.d/99mmdebstrap" "$1/etc/resolv.conf"',
    'rm -f "$1/etc/dpkg/dpkg.cfg.d/99mmdebstrap"',
    // Of no use in a sandbox. As dpkg's path-exclude, each package would go through a filter in Python: a minute more.
    'rm -rf "$1"/usr/share/man/* "$1"/usr/share/info/* "$1"/usr/share/locale/*',
    'find "$1/usr/share/doc" -type f ! -name copyright -delete',
    'find "$1/usr/share/doc" -mindepth 1 -type d -empty -delete',
    'echo localhost > "$1/etc/hostname"',
    'find "$1/etc/apt" -name "*.list" -o -name "*.sources" | xargs -r sed -i -E "s,://[^/@ ]+@,://,g"',
    // A package's own file stays.
    ...copied.map(
      (file) =>
        `test -e "$1/var/lib/dpkg/info/ca-certificates.list" -a "${file}" = /etc/ssl/certs/ca-certificates.crt || rm -rf "$1${file}"`,
    ),
    'mkdir -p "$1/etc/apt/auth.conf.d"',
    'find "$1/var/log" "$1/var/cache/debconf" -type f -delete',
    'rm -f "$1"/var/lib/dpkg/*-old',
  ].join("\n");
}

function run(
  args: string[],
  temporary: string,
  clean: () => Promise<void>,
  onProgress: ((line: string) => void) | undefined,
  signal: AbortSignal | undefined,
): Readable {
  const day = Math.floor(Date.now() / 86_400_000) * 86_400;
  const env = {
    ...process.env,
    LC_ALL: "C.UTF-8",
    TMPDIR: temporary,
    SOURCE_DATE_EPOCH: String(day),
    DEBIAN_FRONTEND: "noninteractive",
  };
  const child = spawn("mmdebstrap", args, { stdio: ["ignore", "pipe", "pipe"], env });
  const tar = new PassThrough({ highWaterMark: 1 << 20 });
  const stop = () => child.kill("SIGTERM");
  signal?.addEventListener("abort", stop, { once: true });
  tar.once("close", () => child.exitCode ?? child.signalCode ?? stop());
  child.stdout.on("error", () => {});
  child.stdout.pipe(tar, { end: false });
  const last: string[] = [];
  let rest = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    const lines = (rest + text).split(/[\n\r]/);
    rest = (lines.pop() ?? "").slice(-1000);
    for (const line of lines.filter(Boolean)) {
      // The lines of hooks are shell.
      if (/^[IWE]: (?!running --)/.test(line)) onProgress?.(line.slice(3));
      last.push(line);
      if (last.length > 12) last.shift();
    }
  });
  const settle = async (code: number | null, cause?: Error) => {
    signal?.removeEventListener("abort", stop);
    await clean();
    if (code === 0) tar.end();
    else if (signal?.aborted) tar.destroy(new DsecError("CANCELLED", "the build of the Debian base was given up"));
    else
      tar.destroy(new DsecError("UNAVAILABLE", `mmdebstrap failed: ${[...last, rest].join("\n").trim()}`, { cause }));
  };
  child.once("error", (error) => settle(null, error));
  child.once("close", (code) => settle(code));
  return tar;
}

function requireProgram(name: string): void {
  const dirs = (process.env["PATH"] ?? "").split(delimiter);
  if (dirs.some((dir) => existsSync(join(dir, name)))) return;
  throw new DsecError("NOT_SUPPORTED", `a Debian base needs ${name}, which is not installed: apt-get install ${name}`);
}

async function suiteOfThisMachine(): Promise<string> {
  const text = existsSync("/etc/os-release") ? await readFile("/etc/os-release", "utf8") : "";
  const suite = /^VERSION_CODENAME="?([a-z][a-z0-9-]*)"?$/m.exec(text)?.[1];
  if (suite !== undefined) return suite;
  throw new DsecError(
    "NOT_SUPPORTED",
    "/etc/os-release names no VERSION_CODENAME; a Debian base is made on a Debian machine",
  );
}

const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;
const parentOf = (file: string): string => file.slice(0, file.lastIndexOf("/"));
