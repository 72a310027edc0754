// A PostgreSQL of the test's own: a cluster in a temporary directory, on a Unix socket, as the user postgres.
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { chmodSync, chownSync, existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";

export interface Postgres {
  readonly url: string;
  /** Ends the server at once, as a crash would; `start` brings it back. */
  kill(): Promise<void>;
  start(): Promise<void>;
  remove(): Promise<void>;
}

/** Why no PostgreSQL can be started here, or undefined. */
export function postgresMissing(): string | undefined {
  if (binaries() === undefined) return "PostgreSQL is not installed (apt-get install postgresql)";
  if (process.getuid?.() !== 0) return "only root can start a server as the user postgres";
  return userId("-u") === undefined ? "there is no user postgres" : undefined;
}

function binaries(): string | undefined {
  const root = "/usr/lib/postgresql";
  if (!existsSync(root)) return undefined;
  const versions = readdirSync(root).sort((a, b) => Number(b) - Number(a));
  return versions.map((version) => join(root, version, "bin")).find((dir) => existsSync(join(dir, "initdb")));
}

function userId(flag: "-u" | "-g"): number | undefined {
  try {
    return Number(execFileSync("id", [flag, "postgres"], { stdio: ["ignore", "pipe", "ignore"] }));
  } catch {
    return undefined;
  }
}

export async function startPostgres(): Promise<Postgres> {
  const bin = binaries() as string;
  const [uid, gid] = [userId("-u") as number, userId("-g") as number];
  const dir = mkdtempSync("/run/dsec-test-pg-");
  chownSync(dir, uid, gid);
  chmodSync(dir, 0o700);
  const data = join(dir, "data");
  const as = { uid, gid, cwd: dir, stdio: "ignore" } as const;
  execFileSync(
    join(bin, "initdb"),
    ["-D", data, "-A", "trust", "-U", "dsec", "--no-sync", "-E", "UTF8", "--locale=C"],
    as,
  );
  let server: ChildProcess | undefined;
  const start = async (): Promise<void> => {
    const options = [
      "-c",
      "listen_addresses=",
      "-c",
      `unix_socket_directories=${dir}`,
      "-c",
      "fsync=off",
      "-c",
      "max_connections=60",
    ];
    server = spawn(join(bin, "postgres"), ["-D", data, ...options], as);
    for (let tries = 0; ; tries++) {
      try {
        execFileSync(join(bin, "pg_isready"), ["-h", dir, "-U", "dsec"], { ...as, timeout: 5_000 });
        return;
      } catch (error) {
        if (tries === 200) throw error;
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    }
  };
  const kill = (): Promise<void> =>
    new Promise((resolve) => {
      const running = server;
      server = undefined;
      if (running === undefined || running.exitCode !== null) return resolve();
      running.once("exit", () => resolve());
      // Immediate shutdown: its workers end too, and connections break.
      running.kill("SIGQUIT");
    });
  await start();
  return {
    url: `postgres://dsec@/postgres?host=${encodeURIComponent(dir)}`,
    kill,
    start,
    async remove() {
      await kill();
      rmSync(dir, { recursive: true, force: true });
    },
  };
}
