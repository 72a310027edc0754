// When a call may be sent again: only where the first attempt did nothing, or a second one does no harm.
import { setTimeout as sleep } from "node:timers/promises";
import { ConnectionError, cancelled, type DsecError, isInterruption } from "../errors.ts";

export interface RetryOptions {
  /** Milliseconds in which interrupted calls are sent again. */
  withinMs: number;
  /** A second call does no harm, even if the first one was carried out. */
  harmless: boolean;
  signal?: AbortSignal | undefined;
  /** Attempts last as long as a command: one that was held open for a second starts the time anew when it breaks. */
  heldOpen?: boolean;
  /** Seen before each further attempt. */
  onRetry?: (error: DsecError) => void;
}

/** Calls `attempt` until it answers, fails for good, or the time since the first interruption is over. */
export async function retrying<T>(attempt: () => Promise<T>, options: RetryOptions): Promise<T> {
  try {
    return await attempt();
  } catch (error) {
    if (!mayRepeat(error, options)) throw error;
    return again(attempt, options, error);
  }
}

function mayRepeat(error: unknown, options: RetryOptions): error is DsecError {
  return isInterruption(error) && (options.harmless || error.outcome !== "unknown") && !options.signal?.aborted;
}

async function again<T>(attempt: () => Promise<T>, options: RetryOptions, first: DsecError): Promise<T> {
  let end = performance.now() + options.withinMs;
  let error = first;
  for (let round = 0; ; round++) {
    const wait = pause(round, error.retryAfterMs);
    if (performance.now() + wait > end) throw error;
    await delay(wait, options.signal);
    options.onRetry?.(error);
    const began = performance.now();
    try {
      return await attempt();
    } catch (next) {
      if (!mayRepeat(next, options)) throw next;
      error = next;
      const now = performance.now();
      if (options.heldOpen && next instanceof ConnectionError && next.sent && now - began > 1000) {
        end = now + options.withinMs;
        round = -1;
      }
    }
  }
}

/** Milliseconds before attempt `round` + 1: what the server asked, else 20 ms doubled up to 1 s; jitter of ± 50 %. */
export function pause(round: number, retryAfterMs = 0): number {
  const base = retryAfterMs > 0 ? retryAfterMs : Math.min(1000, 20 * 2 ** Math.min(round, 10));
  return base * (0.5 + Math.random());
}

export async function delay(ms: number, signal?: AbortSignal): Promise<void> {
  try {
    await sleep(ms, undefined, signal ? { signal } : {});
  } catch (error) {
    throw cancelled(error);
  }
}
