import { readdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { allPids } from "./processes.ts";

const cgroupRoot = "/sys/fs/cgroup";

/** Ends every process of an edge's sandboxes (aethers, inits and what is in their cgroups) and removes its cgroups. */
export async function endSandboxes(edge: string): Promise<{ killed: number; left: string[] }> {
  const killed = new Set<number>();
  const end = Date.now() + 10_000;
  for (;;) {
    const alive = processesOf(edge);
    if (alive.length === 0 || Date.now() > end) break;
    for (const pid of alive) {
      killed.add(pid);
      try {
        process.kill(pid, "SIGKILL");
      } catch {
        // Gone meanwhile.
      }
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const left = cgroupsOf(edge).filter((dir) => !removeCgroup(dir));
  return { killed: killed.size, left };
}

/**
 * Processes in an edge's cgroups, and forks of its hostd, which keep its command line: with an init its whole pid namespace
 * ends. Never by user ID alone: a platform in another chroot may use the same range.
 */
export function processesOf(edge: string): number[] {
  const found = new Set<number>(allPids().filter((pid) => isForkOfHostd(pid, edge)));
  for (const dir of cgroupsOf(edge)) {
    for (const sub of [...directoriesBelow(dir), dir]) {
      for (const pid of readPids(join(sub, "cgroup.procs"))) found.add(pid);
    }
  }
  return [...found].filter((pid) => !isZombie(pid));
}

function isForkOfHostd(pid: number, edge: string): boolean {
  try {
    const args = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
    return /(^|\/)hostd$/.test(args[0] ?? "") && args[1] === "--edge" && args[2] === edge;
  } catch {
    return false;
  }
}

/** `…/dsec/<edge>` in every hierarchy of cgroup v1 and v2 that is mounted. */
export function cgroupsOf(edge: string): string[] {
  const roots = [cgroupRoot, ...list(cgroupRoot).map((name) => join(cgroupRoot, name))];
  return roots.map((root) => join(root, "dsec", edge)).filter((dir) => list(dir).length > 0);
}

function removeCgroup(dir: string): boolean {
  for (const sub of [...directoriesBelow(dir), dir]) {
    try {
      rmdirSync(sub);
    } catch {
      return false;
    }
  }
  return true;
}

/** Deepest first. */
function directoriesBelow(dir: string): string[] {
  try {
    return readdirSync(dir, { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .flatMap((entry) => [...directoriesBelow(join(dir, entry.name)), join(dir, entry.name)]);
  } catch {
    return [];
  }
}

function readPids(file: string): number[] {
  try {
    return readFileSync(file, "utf8")
      .split("\n")
      .filter(Boolean)
      .map(Number)
      .filter((pid) => pid > 0);
  } catch {
    return [];
  }
}

function isZombie(pid: number): boolean {
  try {
    return /^State:\t[ZX]/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return true;
  }
}

function list(dir: string): string[] {
  try {
    return readdirSync(dir);
  } catch {
    return [];
  }
}

/** Each sandbox takes a few processes; Debian's default of 32,768 is soon used up. */
export function raisePidMax(wanted = 4_194_304): void {
  const file = "/proc/sys/kernel/pid_max";
  try {
    if (Number(readFileSync(file, "utf8")) < wanted) writeFileSync(file, String(wanted));
  } catch {
    // Read-only in a container: the platform holds fewer sandboxes, as `doctor` says.
  }
}
