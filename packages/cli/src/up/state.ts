import { readFileSync } from "node:fs";
import { join } from "node:path";
import { writeWhole } from "./data-dir.ts";
import { isAlive } from "./processes.ts";
import type { Range } from "./ranges.ts";
import type { WatchedState } from "./watched.ts";

/** What the supervisor says of the platform, in RUN/up.json. Holds no secret. */
export interface UpState {
  readonly pid: number;
  readonly startTime: string;
  readonly ready: boolean;
  readonly address: string;
  readonly dataDir: string;
  readonly runDir: string;
  /** The checkout it was started from. */
  readonly checkout: string;
  /** Unix milliseconds. */
  readonly startedAtMs: number;
  readonly edges: readonly Range[];
  readonly processes: readonly WatchedState[];
}

export function writeState(state: UpState): void {
  writeWhole(join(state.runDir, "up.json"), `${JSON.stringify(state)}\n`, 0o644);
}

/** The state last written, whoever wrote it. */
export function readState(runDir: string): UpState | undefined {
  try {
    return JSON.parse(readFileSync(join(runDir, "up.json"), "utf8")) as UpState;
  } catch {
    return undefined;
  }
}

/** The platform that is up on this run directory, or undefined. */
export function runningState(runDir: string): UpState | undefined {
  const state = readState(runDir);
  return state && isAlive(state) ? state : undefined;
}
