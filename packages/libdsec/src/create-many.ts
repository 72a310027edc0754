// A burst: many single creates with their own keys, a bounded number of them in flight.
import { DsecError } from "@dsec/api";
import type { ContainerRunArgs, CreateOptions } from "./run-args.ts";
import type { Sandbox } from "./sandbox.ts";

export interface CreateManyOptions extends Omit<CreateOptions, "createKey"> {
  count: number;
  /** Creates in flight at once. Default 32. */
  concurrency?: number | undefined;
}

/** One for each that was asked, in the order in which they become ready. */
export type CreateManyResult =
  | { index: number; sandbox: Sandbox; error?: undefined }
  | { index: number; sandbox?: undefined; error: DsecError };

/**
 * Yields as many results as were asked. A caller that leaves early ends what is under way, and what it was not given yet
 * is stopped.
 */
export async function* createMany(
  one: (args: ContainerRunArgs, options: CreateOptions, index: number) => Promise<Sandbox>,
  args: ContainerRunArgs,
  { count, concurrency = 32, ...options }: CreateManyOptions,
): AsyncGenerator<CreateManyResult, void, void> {
  if (!Number.isInteger(count) || count < 0)
    throw new DsecError("INVALID_ARGUMENT", `count is ${count}; it must be a whole number of at least 0`);
  if (!(concurrency >= 1))
    throw new DsecError("INVALID_ARGUMENT", `concurrency is ${concurrency}; it must be at least 1`);
  const leave = new AbortController();
  const signal = options.signal ? AbortSignal.any([options.signal, leave.signal]) : leave.signal;
  const ready: CreateManyResult[] = [];
  let wake = () => {};
  let next = 0;
  const lane = async () => {
    while (next < count && !leave.signal.aborted) {
      const index = next++;
      try {
        ready.push({ index, sandbox: await one(args, { ...options, signal }, index) });
      } catch (error) {
        ready.push({ index, error: DsecError.from(error) });
      }
      wake();
    }
  };
  const lanes = Array.from({ length: Math.min(concurrency, count) }, lane);
  try {
    for (let given = 0; given < count; given++) {
      while (ready.length === 0) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
      yield ready.shift() as CreateManyResult;
    }
  } finally {
    leave.abort();
    await Promise.all(lanes);
    await Promise.all(ready.map((result) => result.sandbox?.stop().catch(() => {})));
  }
}
