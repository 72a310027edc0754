import { existsSync, readdirSync, rmdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { DsecError } from "@dsec/api";
import { endSandboxes, processesOf } from "./ending.ts";
import type { Places } from "./layout.ts";
import { readRanges, releaseRanges } from "./ranges.ts";
import { readState } from "./state.ts";

/** Ends what is left of a platform whose servers have ended, and gives back what it has of the machine. The data stay. */
export async function clear({ dataDir, runDir }: Places, progress: (line: string) => void): Promise<void> {
  for (const { edge } of readRanges().filter((range) => range.dataDir === dataDir)) {
    // What an edge that did not answer has left; a second time the kernel may have let its cgroups go.
    let { killed, left } = await endSandboxes(edge);
    if (left.length > 0) ({ left } = await endSandboxes(edge));
    if (killed > 0) progress(`ended ${killed} processes that were left on ${edge}`);
    if (left.length > 0) throw new DsecError("INTERNAL", `these cgroups cannot be removed: ${left.join(", ")}`);
    rmSync(join(runDir, edge), { recursive: true, force: true });
  }
  if (readState(runDir)?.dataDir === dataDir) rmSync(join(runDir, "up.json"), { force: true });
  // /run/dsec itself keeps the machine's ranges as long as there are any.
  if (existsSync(runDir) && readdirSync(runDir).length === 0) rmdirSync(runDir);
  await releaseRanges(dataDir);
}

/** The same after a start that failed, unless sandboxes of an earlier one live on. */
export async function clearUnlessAlive(places: Places): Promise<void> {
  const mine = readRanges().filter((range) => range.dataDir === places.dataDir);
  if (mine.length > 0 && mine.every(({ edge }) => processesOf(edge).length === 0)) await clear(places, () => {});
}
