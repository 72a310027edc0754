import { spawn } from "node:child_process";
import { chmodSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";

export const root = join(import.meta.dirname, "../../../..");
const main = join(root, "packages/cli/src/launcher-main.ts");

export interface Ran {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a program to its end. */
export function run(file: string, args: readonly string[], env: NodeJS.ProcessEnv, cwd = "/"): Promise<Ran> {
  return new Promise((resolve, reject) => {
    const child = spawn(file, args, { cwd, env, stdio: ["ignore", "pipe", "pipe"] });
    let stdout = "";
    let stderr = "";
    child.stdout.on("data", (data: Buffer) => {
      stdout += data;
    });
    child.stderr.on("data", (data: Buffer) => {
      stderr += data;
    });
    child.once("error", reject);
    child.once("close", (status) => resolve({ status, stdout, stderr }));
  });
}

export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer().once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address() as { port: number };
      server.close(() => resolve(port));
    });
  });
}

/** Directories and a port of a platform of a test's own, and the launcher's commands on them. */
export class OwnPlatform implements AsyncDisposable {
  readonly dir: string;
  readonly dataDir: string;
  readonly port: number;
  readonly env: NodeJS.ProcessEnv;

  private constructor(dir: string, port: number) {
    this.dir = dir;
    this.dataDir = join(dir, "data");
    this.port = port;
    this.env = { ...process.env, XDG_CONFIG_HOME: join(dir, "config"), DSEC_ROOT: root };
    delete this.env["DSEC_ENDPOINT"];
    delete this.env["DSEC_API_KEY"];
  }

  static async prepare(): Promise<OwnPlatform> {
    const dir = mkdtempSync("/var/tmp/dsec-test-");
    // The servers' user walks through it.
    chmodSync(dir, 0o755);
    return new OwnPlatform(dir, await freePort());
  }

  /** A command of the launcher on this data directory. */
  dsec(command: string, ...args: string[]): Promise<Ran> {
    return run(process.execPath, [main, command, "--data-dir", this.dataDir, ...args], this.env);
  }

  up(...args: string[]): Promise<Ran> {
    return this.dsec("up", "--detach", "--slots", "64", "--port", String(this.port), ...args);
  }

  get settings(): { endpoint: string; apiKey: string } {
    return JSON.parse(readFileSync(join(this.dir, "config/dsec/config.json"), "utf8"));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const { status, stderr } = await this.dsec("down");
    if (status !== 0) throw new Error(`down failed: ${stderr}`);
    rmSync(this.dir, { recursive: true, force: true });
  }
}
