import { totalmem } from "node:os";
import { join } from "node:path";
import type { AppCopy } from "./app-copy.ts";
import { type KeyFiles, writeWhole } from "./data-dir.ts";
import { host } from "./layout.ts";
import type { Range } from "./ranges.ts";
import type { User } from "./users.ts";
import type { Program } from "./watched.ts";

/** Node's flags for the servers: short garbage stays out of the old space; the edge collects when it is idle. */
export const serverFlags = ["--disable-warning=ExperimentalWarning", "--max-semi-space-size=16", "--expose-gc"];

/** What was freed goes back to the kernel: few arenas, and a threshold that does not grow with the largest block. */
export const serverMalloc = { MALLOC_ARENA_MAX: "2", MALLOC_TRIM_THRESHOLD_: "131072" };

export interface Plan {
  readonly dataDir: string;
  readonly runDir: string;
  /** An edge. */
  readonly readySlots?: number;
  readonly port: number;
  readonly databaseUrl?: string;
  readonly app: AppCopy;
  readonly server: User;
  readonly keys: KeyFiles;
  readonly ranges: readonly Range[];
}

/** Writes one file of settings a server and says how each process is started; hostd before its edge, the apiserver last. */
export function programsOf(plan: Plan, socketIsThere: (path: string) => boolean): Program[] {
  const programs: Program[] = [];
  const level = process.env["DSEC_LOG_LEVEL"];
  const logLevel = level ? { logLevel: level } : {};
  for (const range of plan.ranges) {
    const runDir = join(plan.runDir, range.edge);
    programs.push({
      name: `hostd-${range.edge}`,
      file: plan.app.hostd,
      args: [
        ...["--edge", range.edge, "--run-dir", runDir, "--data-dir", plan.dataDir],
        ...[
          "--edge-uid",
          String(plan.server.uid),
          "--uid-start",
          String(range.uidStart),
          "--slots",
          String(range.slots),
          "--ready-slots",
          String(plan.readySlots ?? defaultReadySlots(plan.ranges.length)),
        ],
        ...["--bash", plan.app.bash],
      ],
      cwd: "/",
      env: rootEnv(),
      isReady: () => socketIsThere(join(runDir, "hostd.sock")),
    });
    const config = settingsFile(plan, `edge-${range.edge}`, {
      edge: range.edge,
      dataDir: plan.dataDir,
      runDir,
      principalPublicKeyFile: plan.keys.principalPublicKeyFile,
      mklayer: plan.app.mklayer,
      maxSandboxes: range.slots,
      ...logLevel,
    });
    programs.push(nodeProgram(plan, `edge-${range.edge}`, "packages/edge/src/main.ts", config));
  }
  const config = settingsFile(plan, "apiserver", {
    host,
    port: plan.port,
    dataDir: plan.dataDir,
    edges: plan.ranges.map(({ edge }) => ({ edge, socket: join(plan.runDir, edge, "edge.sock") })),
    database: plan.databaseUrl ? { url: plan.databaseUrl } : { pgliteDir: join(plan.dataDir, "pg") },
    principalPrivateKeyFile: plan.keys.principalPrivateKeyFile,
    principalPublicKeyFile: plan.keys.principalPublicKeyFile,
    firstKeyFile: plan.keys.firstKeyFile,
    ...logLevel,
  });
  programs.push(nodeProgram(plan, "apiserver", "packages/apiserver/src/main.ts", config));
  return programs;
}

function settingsFile(plan: Plan, name: string, settings: object): string {
  const file = join(plan.dataDir, "settings", `${name}.json`);
  // The group is the servers': a database URL may hold a password.
  writeWhole(file, `${JSON.stringify(settings, null, 2)}\n`, 0o640, { uid: 0, gid: plan.server.gid });
  return file;
}

function nodeProgram(plan: Plan, name: string, main: string, config: string): Program {
  return {
    name,
    file: plan.app.node,
    args: [...serverFlags, join(plan.app.dir, main), "--config", config],
    cwd: plan.app.dir,
    // Nothing of the caller's environment: it may hold secrets, and proxies that the servers must not use.
    env: {
      PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
      LANG: "C.UTF-8",
      HOME: "/nonexistent",
      NODE_COMPILE_CACHE: join(plan.dataDir, "cache"),
      NODE_ENV: "production",
      ...serverMalloc,
    },
    user: plan.server,
  };
}

/** A slot that is ready takes some 70 KiB of the kernel's memory: at most 0.6 % of the machine's goes there. */
function defaultReadySlots(edges: number): number {
  const mebibytes = totalmem() / 2 ** 20;
  return Math.floor(mebibytes / 12 / edges);
}

function rootEnv(): NodeJS.ProcessEnv {
  return { PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", LANG: "C.UTF-8", RUST_BACKTRACE: "1" };
}
