// Runs the command line as a process of its own.
import { spawn } from "node:child_process";
import { join } from "node:path";

export const mainFile = join(import.meta.dirname, "../../src/main.ts");

export interface Ran {
  code: number | null;
  stdout: string;
  stderr: string;
}

export function dsec(
  args: string[],
  options: { env?: Record<string, string>; input?: string | Buffer } = {},
): Promise<Ran> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [mainFile, ...args], {
      env: { PATH: process.env["PATH"], HOME: "/nonexistent", XDG_CACHE_HOME: "/nonexistent", ...options.env },
      stdio: [options.input === undefined ? "ignore" : "pipe", "pipe", "pipe"],
    });
    const parts = { stdout: [] as Buffer[], stderr: [] as Buffer[] };
    child.stdout?.on("data", (part) => parts.stdout.push(part));
    child.stderr?.on("data", (part) => parts.stderr.push(part));
    child.stdin?.on("error", () => {});
    child.stdin?.end(options.input);
    child.on("error", reject);
    child.on("close", (code) =>
      resolve({ code, stdout: Buffer.concat(parts.stdout).toString(), stderr: Buffer.concat(parts.stderr).toString() }),
    );
  });
}
