// A PostgreSQL of a test's own, from Debian's packages, on a Unix socket and a directory that go with it.
import { execFile, spawn } from "node:child_process";
import { chmodSync, chownSync, existsSync, readdirSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";

const run = promisify(execFile);

export interface Postgres extends AsyncDisposable {
  readonly url: string;
}

/** Undefined where no server is installed. */
export async function startPostgres(): Promise<Postgres | undefined> {
  const base = "/usr/lib/postgresql";
  const version = existsSync(base) ? readdirSync(base).sort((a, b) => Number(b) - Number(a))[0] : undefined;
  if (version === undefined) return undefined;
  const bin = join(base, version, "bin");
  if (!existsSync(join(bin, "initdb"))) return undefined;
  const uid = Number((await run("id", ["-u", "postgres"])).stdout);
  const gid = Number((await run("id", ["-g", "postgres"])).stdout);
  const dir = await mkdtemp("/var/tmp/dsec-test-pg-");
  chownSync(dir, uid, gid);
  // The apiservers run as another user.
  chmodSync(dir, 0o755);
  const as = { uid, gid, cwd: dir };
  const data = join(dir, "data");
  await run(join(bin, "initdb"), ["-D", data, "-U", "dsec", "-A", "trust", "--no-sync"], as);
  const settings = ["-c", "listen_addresses=", "-c", `unix_socket_directories=${dir}`, "-c", "fsync=off"];
  const server = spawn(join(bin, "postgres"), ["-D", data, ...settings], { ...as, stdio: "ignore" });
  const ended = new Promise((resolve) => server.once("exit", resolve));
  for (let i = 0; !existsSync(join(dir, ".s.PGSQL.5432")); i++) {
    if (i === 200 || server.exitCode !== null) throw new Error("PostgreSQL did not start within 10 s");
    await sleep(50);
  }
  return {
    url: `postgres://dsec@localhost/postgres?host=${encodeURIComponent(dir)}`,
    async [Symbol.asyncDispose]() {
      server.kill("SIGINT");
      await ended;
      await rm(dir, { recursive: true, force: true });
    },
  };
}
