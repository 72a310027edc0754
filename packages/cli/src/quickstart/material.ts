import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { DsecError } from "@dsec/api";

const exec = promisify(execFile);

/** A published package with tests of its own: 2,400 lines, 180 tests, BSD licence. */
export const project = {
  name: "toolz",
  version: "1.0.0",
  sha256: "2c86e3d9a04798ac556793bced838816296a2f085017664e4995cb40a1047a02",
  file: "toolz/itertoolz.py",
  right: "    return itertools.islice(seq, n)\n",
  wrong: "    return itertools.islice(seq, n + 1)\n",
} as const;

const testTool = { name: "pytest", version: "8.3.3" } as const;

/** A directory of ours that goes with it. */
export class Scratch implements Disposable {
  readonly dir = mkdtempSync("/var/tmp/dsec-quickstart-");

  [Symbol.dispose](): void {
    rmSync(this.dir, { recursive: true, force: true });
  }
}

/** The package's source from PyPI, with a one-line bug in it. @returns a directory that holds /workspace */
export async function workspaceTree(scratch: Scratch, signal: AbortSignal): Promise<string> {
  const download = join(scratch.dir, "sdist");
  await pip(signal, [
    "download",
    "--no-deps",
    "--no-binary",
    project.name,
    "-d",
    download,
    `${project.name}==${project.version}`,
  ]);
  const archive = join(download, readdirSync(download).find((name) => name.endsWith(".tar.gz")) ?? "");
  const sum = createHash("sha256").update(readFileSync(archive)).digest("hex");
  if (sum !== project.sha256)
    throw new DsecError("ARCHIVE_INVALID", `${archive} has the SHA-256 ${sum}, not ${project.sha256}`);
  const tree = join(scratch.dir, "workspace-layer");
  const source = join(tree, "workspace");
  mkdirSync(source, { recursive: true });
  await exec("tar", ["-xzf", archive, "--strip-components=1", "--no-same-owner", "-C", source]);
  const file = join(source, project.file);
  const text = readFileSync(file, "utf8");
  if (text.split(project.right).length !== 2) throw new DsecError("INTERNAL", `${project.file} is not as expected`);
  writeFileSync(file, text.replace(project.right, project.wrong));
  await compile(source);
  return tree;
}

/** pytest and what it needs, from wheels. @returns a directory that holds /opt/toolkit */
export async function toolkitTree(scratch: Scratch, signal: AbortSignal): Promise<string> {
  const tree = join(scratch.dir, "toolkit-layer");
  const to = join(tree, "opt/toolkit");
  mkdirSync(to, { recursive: true });
  await pip(signal, [
    "install",
    "--no-compile",
    "--only-binary=:all:",
    "--target",
    to,
    `${testTool.name}==${testTool.version}`,
  ]);
  await compile(to);
  return tree;
}

/** Compiled files that Python checks by the content of their sources: valid whatever times a layer's files have. */
async function compile(dir: string): Promise<void> {
  await exec(python(), ["-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "-s", dir, dir]);
}

/** Debian's own first, so that it is the Python of the base. */
function python(): string {
  return existsSync("/usr/bin/pip3") ? "/usr/bin/python3" : "python3";
}

/** Environment in which the workspace's tests find the toolkit. */
export const environment = { PYTHONPATH: "/opt/toolkit", PYTHONDONTWRITEBYTECODE: "1" } as const;

async function pip(signal: AbortSignal, args: readonly string[]): Promise<void> {
  try {
    await exec(python(), ["-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input", ...args], {
      env: { PIP_ROOT_USER_ACTION: "ignore", HOME: "/root", ...process.env },
      maxBuffer: 1 << 24,
      signal,
    });
  } catch (error) {
    signal.throwIfAborted();
    const { stderr = "", message } = error as { stderr?: string; message: string };
    throw new DsecError(
      "UNAVAILABLE",
      `pip ${args[0]} ${args.at(-1)} failed: ${stderr.trim().split("\n").slice(-3).join(" ") || message}`,
    );
  }
}
