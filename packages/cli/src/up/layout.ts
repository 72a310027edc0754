import { createHash } from "node:crypto";
import { existsSync, readFileSync, statfsSync } from "node:fs";
import { join, resolve } from "node:path";
import { DsecError } from "@dsec/api";
import { ownRun } from "./range-marks.ts";

export const defaultDataDir = "/var/lib/dsec";
export const defaultPort = 7878;
export const host = "127.0.0.1";
/** Which ID ranges and edge names are taken, for all platforms of the machine. */
export const rangesDir = "/run/dsec";
/** Version of the layout below a data directory; an older program refuses a newer one. */
export const layoutVersion = 1;

/** The root of the checkout, or of the servers' own copy, that this file is in. */
export const treeRoot = resolve(import.meta.dirname, "../../../..");

/** Where one platform keeps its things. */
export interface Places {
  readonly dataDir: string;
  readonly runDir: string;
}

/** What `up` was asked for; what is not given keeps its default. */
export interface UpOptions {
  readonly dataDir?: string;
  readonly runDir?: string;
  readonly port?: number;
  readonly edges?: number;
  /** Sandboxes an edge can hold; each takes 65,536 user IDs. */
  readonly slots?: number;
  /** Of these, made ready ahead; by default as many as take 0.6 % of the memory. */
  readonly readySlots?: number;
  /** A PostgreSQL instead of the embedded database. */
  readonly databaseUrl?: string;
}

/** What the lock of a data directory says of its holder. */
export interface Holder {
  readonly pid: number;
  readonly startTime: string;
  readonly dataDir: string;
  readonly runDir: string;
  readonly port: number;
  readonly edges: number;
  /** The checkout it was started from. */
  readonly checkout: string;
}

/** Places of a platform; a data directory of one's own gets a run directory of its own. */
export function placesOf(options: Pick<UpOptions, "dataDir" | "runDir">): Places {
  const dataDir = resolve(options.dataDir ?? defaultDataDir);
  if (options.runDir !== undefined) {
    const runDir = resolve(options.runDir);
    // A socket's path holds 107 bytes: RUN/<edge, 12>/<slot, 5>/aether.sock.
    if (Buffer.byteLength(runDir) > 70) {
      throw new DsecError("INVALID_ARGUMENT", `the run directory ${runDir} is longer than 70 bytes`);
    }
    return { dataDir, runDir };
  }
  const known = readHolder(dataDir)?.runDir;
  if (known !== undefined) return { dataDir, runDir: known };
  const hash = (text: string) => createHash("sha256").update(text).digest("hex").slice(0, 8);
  // Memory is shared with chroots that have the same /dev but a /run of their own.
  if (runBase() === "/dev/shm") return { dataDir, runDir: `/dev/shm/dsec-${hash(`${ownRun()} ${dataDir}`)}` };
  return { dataDir, runDir: dataDir === defaultDataDir ? "/run/dsec" : `/run/dsec-${hash(dataDir)}` };
}

/** /run; where that is on a disk, as in some containers and images, memory: each sandbox makes and removes a socket. */
function runBase(): "/run" | "/dev/shm" {
  return !isInMemory("/run") && isInMemory("/dev/shm") ? "/dev/shm" : "/run";
}

function isInMemory(path: string): boolean {
  const tmpfs = 0x01021994;
  try {
    return statfsSync(path).type === tmpfs;
  } catch {
    return false;
  }
}

export function lockFile(dataDir: string): string {
  return join(dataDir, "lock");
}

/** Who wrote the lock file last; it may be gone. */
export function readHolder(dataDir: string): Holder | undefined {
  try {
    return JSON.parse(readFileSync(lockFile(dataDir), "utf8")) as Holder;
  } catch {
    return undefined;
  }
}

/** Refuses a data directory that a newer program wrote. */
export function checkVersion(dataDir: string): void {
  const file = join(dataDir, "VERSION");
  if (!existsSync(file)) return;
  const text = readFileSync(file, "utf8").trim();
  const version = Number(text);
  if (!Number.isInteger(version) || version < 1) {
    throw new DsecError("DATA_DIR_NEWER", `${file} says "${text.slice(0, 40)}", which is no version known here`);
  }
  if (version > layoutVersion) {
    throw new DsecError(
      "DATA_DIR_NEWER",
      `${dataDir} was written by a newer dsec (layout ${version}; this one knows ${layoutVersion})`,
    );
  }
}
