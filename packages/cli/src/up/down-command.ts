import { DsecError } from "@dsec/api";
import { clear } from "./clearing.ts";
import { readFirstKey } from "./client-config.ts";
import { placesOf, readHolder, type UpOptions } from "./layout.ts";
import { isAlive } from "./processes.ts";
import { readRanges } from "./ranges.ts";
import { runningState, type UpState } from "./state.ts";
import { requireRoot } from "./users.ts";

/** Ends everything of a platform: sandboxes, servers, cgroups, run directory. The data stay. Twice is the same as once. */
export async function down(options: UpOptions, progress: (line: string) => void): Promise<void> {
  requireRoot("down");
  const { dataDir, runDir } = placesOf(options);
  const state = runningState(runDir);
  const holder = readHolder(dataDir);
  const living = holder && isAlive(holder) ? holder : undefined;
  const ranges = readRanges().filter((range) => range.dataDir === dataDir);
  if (!living && ranges.length === 0) {
    progress(`nothing is up on ${dataDir}`);
    return;
  }
  if (state?.ready && state.dataDir === dataDir) await stopByApi(state, progress);
  if (living) {
    progress(`ending the servers (supervisor PID ${living.pid})`);
    await endProcess(living);
  }
  await clear({ dataDir, runDir }, progress);
  progress("down; the data are kept");
}

/** Stops all sandboxes as a caller would, so that their edges record why they ended. */
async function stopByApi(state: UpState, progress: (line: string) => void): Promise<void> {
  const deadline = AbortSignal.timeout(60_000);
  try {
    const key = readFirstKey(state.dataDir);
    const call = async (method: string, body: object) => {
      const response = await fetch(`${state.address}/dsec.v1.SandboxService/${method}`, {
        method: "POST",
        headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
        body: JSON.stringify(body),
        signal: deadline,
      });
      if (!response.ok) throw new Error(`${method}: HTTP ${response.status}`);
      return (await response.json()) as { sandboxes?: { sandboxId: string }[] };
    };
    for (;;) {
      const states = ["CREATING", "RUNNING", "PAUSED", "STOPPING"].map((name) => `SANDBOX_STATE_${name}`);
      const { sandboxes = [] } = await call("ListSandboxes", { pageSize: 1000, recursive: true, states });
      if (sandboxes.length === 0) return;
      progress(`stopping ${sandboxes.length} sandboxes`);
      const queue = sandboxes.map(({ sandboxId }) => sandboxId);
      const worker = async () => {
        for (let id = queue.pop(); id !== undefined; id = queue.pop()) await call("StopSandbox", { sandboxId: id });
      };
      await Promise.all(Array.from({ length: 16 }, worker));
    }
  } catch (error) {
    progress(`the platform did not stop its sandboxes (${(error as Error).message}); ending their processes`);
  }
}

async function endProcess(who: { pid: number; startTime: string }): Promise<void> {
  process.kill(who.pid, "SIGTERM");
  for (let waited = 0; isAlive(who); waited += 50) {
    if (waited > 30_000)
      throw new DsecError("INTERNAL", `the supervisor (PID ${who.pid}) did not end within 30 s of SIGTERM`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
