import { placesOf, readHolder, type UpOptions } from "./layout.ts";
import { isAlive } from "./processes.ts";
import { runningState, type UpState } from "./state.ts";

export interface Status {
  readonly up: boolean;
  /** "up", "starting", "degraded" (a server is being started again), "down". */
  readonly state: string;
  /** The apiserver answered within 2 s. */
  readonly answers: boolean;
  readonly platform?: UpState;
}

/** What is up on a data directory; asks the apiserver whether it answers. */
export async function status(options: UpOptions): Promise<Status> {
  const { dataDir, runDir } = placesOf(options);
  const holder = readHolder(dataDir);
  const platform = runningState(holder?.runDir ?? runDir);
  if (!platform || platform.dataDir !== dataDir) {
    const starting = holder !== undefined && isAlive(holder);
    return { up: starting, state: starting ? "starting" : "down", answers: false };
  }
  const answers = await answersHttp(platform.address);
  const whole = platform.processes.every((one) => one.state === "ready");
  return { up: true, state: !platform.ready ? "starting" : whole && answers ? "up" : "degraded", answers, platform };
}

export function describe(result: Status, dataDir: string): string[] {
  const { platform } = result;
  if (!platform)
    return [result.up ? `starting on ${dataDir}` : `down: nothing runs on ${dataDir}; \`./dsec up\` starts it`];
  const lines = [
    `${result.state}: ${platform.address}, PID ${platform.pid}, since ${new Date(platform.startedAtMs).toISOString()}`,
    `data ${platform.dataDir}, sockets ${platform.runDir}, started from ${platform.checkout}`,
  ];
  for (const one of platform.processes) {
    const again = one.restarts > 0 ? `, started again ${one.restarts} times (last: ${one.lastExit})` : "";
    lines.push(`  ${one.name.padEnd(20)} ${one.state.padEnd(10)} PID ${one.pid}${again}`);
  }
  if (!result.answers) lines.push(`  the apiserver does not answer; see ${platform.dataDir}/logs/apiserver.log`);
  return lines;
}

async function answersHttp(address: string): Promise<boolean> {
  try {
    // Any HTTP answer will do: it serves.
    await fetch(`${address}/healthz`, { signal: AbortSignal.timeout(2000) });
    return true;
  } catch {
    return false;
  }
}
