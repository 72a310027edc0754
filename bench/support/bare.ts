// The kernel alone: clone into new namespaces, overlay, pivot_root, cgroups, exec; no platform around it.
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { progress } from "./document.ts";

const run = promisify(execFile);

/** Processes made, run and reaped a second; undefined, with the reason on stderr, where it cannot run. */
export async function bareKernelRate(dir: string, forMs: number): Promise<number | undefined> {
  const native = join(import.meta.dirname, "../../native");
  try {
    const args = ["run", "--release", "--quiet", "-p", "hostd", "--example", "bare", "--", dir, String(forMs)];
    const { stdout } = await run("cargo", args, { cwd: native, maxBuffer: 2 ** 24 });
    return Number(JSON.parse(stdout).rate);
  } catch (error) {
    progress(`the bare kernel is left out: ${error instanceof Error ? error.message : String(error)}`);
    return undefined;
  }
}
