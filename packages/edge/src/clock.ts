// Time that a change of the wall clock does not move.
import { readFileSync } from "node:fs";

export interface Clock {
  /** Milliseconds since the node's boot (CLOCK_MONOTONIC): the same in every process until the next boot. */
  monoMs(): number;
  /** Unix milliseconds, for people and for deadlines that callers give. */
  wallMs(): number;
}

export const systemClock: Clock = {
  monoMs: () => {
    const [seconds, nanos] = process.hrtime();
    return seconds * 1000 + nanos / 1e6;
  },
  wallMs: () => Date.now(),
};

/** A moment of the monotonic clock as Unix milliseconds, seen from now. */
export function wallOf(clock: Clock, monoMs: number): number {
  return Math.round(clock.wallMs() + (monoMs - clock.monoMs()));
}

/** Random, made by the kernel at boot. */
export function readBootId(): string {
  return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
}
