import { execFileSync } from "node:child_process";
import { createHash, type Hash } from "node:crypto";
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
} from "node:fs";
import { dirname, join, relative } from "node:path";
import { DsecError } from "@dsec/api";
import { treeRoot } from "./layout.ts";

/** The servers' own copy of everything that they run, so that they need no access to the checkout. */
export interface AppCopy {
  readonly dir: string;
  readonly hash: string;
  readonly node: string;
  readonly hostd: string;
  readonly mklayer: string;
  readonly bash: string;
}

/** Programs that the copy takes besides sources and npm packages. */
interface Sources {
  readonly node: string;
  readonly hostd: string;
  /** hostd finds it beside itself. */
  readonly "sandbox-init": string;
  readonly mklayer: string;
  readonly bash: string;
}

function sources(): Sources {
  const built = join(treeRoot, "native/target/release");
  const hostd = process.env["DSEC_HOSTD"] ?? join(built, "hostd");
  const found = {
    node: process.execPath,
    hostd,
    "sandbox-init": join(dirname(hostd), "sandbox-init"),
    mklayer: process.env["DSEC_MKLAYER"] ?? join(built, "mklayer"),
    bash: process.env["DSEC_BASH"] ?? "/bin/bash-static",
  };
  for (const [what, file] of Object.entries(found)) {
    if (!existsSync(file))
      throw new DsecError("NODE_UNFIT", `${what} is missing (${file}); \`./dsec up\` builds and installs it`);
  }
  return found;
}

/** Makes DATA/app/<hash> where it is not there yet. Written beside and renamed, so it is whole or not there. */
export function copyApp(dataDir: string, progress: (line: string) => void): AppCopy {
  const from = sources();
  const appDir = join(dataDir, "app");
  const hash = hashOf(from);
  const dir = join(appDir, hash);
  if (!existsSync(dir)) {
    progress("copying the servers to the data directory");
    const temporary = join(appDir, `.new-${process.pid}`);
    rmSync(temporary, { recursive: true, force: true });
    fill(temporary, from);
    renameSync(temporary, dir);
  }
  const bin = join(dir, "bin");
  return {
    dir,
    hash,
    node: join(bin, "node"),
    hostd: join(bin, "hostd"),
    mklayer: join(bin, "mklayer"),
    bash: join(bin, "bash"),
  };
}

/** Removes copies that nothing runs from: older ones and half-made ones. */
export function dropOldCopies(dataDir: string, keep: string): void {
  for (const name of readdirSync(join(dataDir, "app"))) {
    if (name !== keep) rmSync(join(dataDir, "app", name), { recursive: true, force: true });
  }
}

function fill(to: string, from: Sources): void {
  mkdirSync(join(to, "bin"), { recursive: true, mode: 0o755 });
  for (const [name, file] of Object.entries(from)) {
    // A copy that shares its blocks where the file system can.
    execFileSync("cp", ["--reflink=auto", "--dereference", file, join(to, "bin", name)]);
    chmodSync(join(to, "bin", name), 0o755);
  }
  for (const name of packageNames()) {
    for (const part of ["package.json", "src"])
      copyTree(join(treeRoot, "packages", name, part), join(to, "packages", name, part));
  }
  copyTree(join(treeRoot, "package.json"), join(to, "package.json"));
  for (const path of productionPackages()) copyTree(join(treeRoot, path), join(to, path), path);
  execFileSync("chmod", ["-R", "u=rwX,go=rX", to]);
  mkdirSync(join(to, "node_modules/@dsec"), { recursive: true, mode: 0o755 });
  for (const name of packageNames()) symlinkSync(`../../packages/${name}`, join(to, "node_modules/@dsec", name));
}

/** Packages of ours that the servers and the client library need; `cli` is with them for the supervisor. */
function packageNames(): string[] {
  return readdirSync(join(treeRoot, "packages")).filter((name) =>
    existsSync(join(treeRoot, "packages", name, "package.json")),
  );
}

/** Paths below the root of the npm packages that are no development ones, as the lock file says. */
function productionPackages(): string[] {
  const lock = JSON.parse(readFileSync(join(treeRoot, "package-lock.json"), "utf8")) as {
    packages: Record<string, { dev?: boolean; devOptional?: boolean; link?: boolean }>;
  };
  return Object.entries(lock.packages)
    .filter(([path, entry]) => path.includes("node_modules/") && !entry.dev && !entry.devOptional && !entry.link)
    .map(([path]) => path)
    .filter((path) => existsSync(join(treeRoot, path)));
}

function copyTree(from: string, to: string, path = ""): void {
  mkdirSync(dirname(to), { recursive: true, mode: 0o755 });
  cpSync(from, to, {
    recursive: true,
    // Packages inside packages come by their own entry.
    filter: (file) => path === "" || !relative(from, file).split("/").includes("node_modules"),
  });
}

function hashOf(from: Sources): string {
  const hash = createHash("sha256");
  hash.update(process.version).update(readFileSync(join(treeRoot, "package-lock.json")));
  for (const file of [from.hostd, from["sandbox-init"], from.mklayer]) hash.update(readFileSync(file));
  hash.update(String(statSync(from.bash).size));
  for (const name of packageNames()) hashTree(hash, join(treeRoot, "packages", name, "src"));
  return hash.digest("hex").slice(0, 16);
}

function hashTree(hash: Hash, dir: string): void {
  for (const entry of readdirSync(dir, { withFileTypes: true }).sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const path = join(dir, entry.name);
    if (entry.isDirectory()) hashTree(hash, path);
    else if (entry.isFile()) hash.update(`${relative(treeRoot, path)}\0`).update(readFileSync(path));
  }
}
