// One create, seen through: the same key and the same absolute deadline for every attempt, so there is never a second one.
import { DsecError, SandboxService, type Sandbox as WireSandbox } from "@dsec/api";
import { ConnectionError, cancelled, isInterruption, isReason } from "./errors.ts";
import {
  type ContainerRunArgs,
  type CreateOptions,
  type CreateRequest,
  createRequest,
  newCreateKey,
} from "./run-args.ts";
import type { Calls } from "./transport/calls.ts";
import { delay, pause } from "./transport/retry.ts";

export const defaultCreateMs = 120_000;

/**
 * @throws DsecError CAPACITY_FULL when no node had room until the time was over; QUOTA_EXCEEDED; NEVER_FITS;
 *   DEADLINE_EXCEEDED or UNAVAILABLE with outcome "unknown" where a sandbox may have been made.
 */
export async function createSandbox(
  calls: Calls,
  args: ContainerRunArgs,
  options: CreateOptions = {},
): Promise<WireSandbox> {
  const { timeoutMs = defaultCreateMs, signal } = options;
  if (!Number.isFinite(timeoutMs) || timeoutMs <= 0)
    throw new DsecError("INVALID_LIMIT", `timeoutMs is ${timeoutMs}; it must be above 0`);
  const request = {
    ...createRequest(args),
    createKey: options.createKey ?? newCreateKey(),
    deadlineUnixMs: BigInt(Math.ceil(Date.now() + timeoutMs)),
  };
  if (signal?.aborted) throw cancelled(signal.reason);
  const end = performance.now() + timeoutMs;
  // An attempt that may have arrived makes every later one a retry: the apiserver then asks the edges for the key first.
  // A key of the caller's own may have been used before, here or in another process.
  let retry = options.createKey !== undefined;
  let interruptedAt = 0;
  for (let round = 0; ; round++) {
    try {
      const { sandbox } = await calls.call(
        SandboxService.method.createSandbox,
        { ...request, retry },
        // A little longer than the server's own limit, so that its answer (which knows more) comes first.
        { once: true, signal, attemptMs: Math.max(1, end - performance.now()) + 2_000, long: true },
      );
      if (!sandbox) throw new DsecError("INTERNAL", "the answer to a create holds no sandbox");
      return sandbox;
    } catch (thrown) {
      const error = DsecError.from(thrown);
      if (signal?.aborted) {
        calls.later(undo(calls, request));
        throw error;
      }
      // A later attempt of ours was placed before this one: ask what came of it.
      const superseded = isReason(error, "CREATE_SUPERSEDED");
      if (error.outcome === "unknown" || superseded) retry = true;
      const now = performance.now();
      const interrupted = superseded || isInterruption(error);
      if (!interrupted && !waits(error, options)) throw unknownIf(retry, error);
      // A wrong address is told at once instead of when the time is over.
      if (interrupted) interruptedAt ||= now;
      const ends =
        error instanceof ConnectionError && !calls.http.answered ? Math.min(end, interruptedAt + calls.retryMs) : end;
      if (!interrupted) round = Math.max(round, 3);
      const wait = pause(round, error.retryAfterMs);
      if (now + wait >= ends) throw unknownIf(retry, error);
      await delay(wait, signal).catch((abort) => {
        if (retry) calls.later(undo(calls, request));
        throw abort;
      });
    }
  }
}

/** Milliseconds for finding out what came of a create that was given up. */
const undoMs = 5_000;

/** The caller has left: what was made meanwhile is stopped. Asks with the key, so that nothing new outlives the question. */
async function undo(calls: Calls, request: CreateRequest): Promise<void> {
  const deadlineUnixMs = BigInt(Date.now() + undoMs);
  const { sandbox } = await calls.call(
    SandboxService.method.createSandbox,
    { ...request, deadlineUnixMs, retry: true },
    { once: true, attemptMs: undoMs },
  );
  if (!sandbox) return;
  const { sandboxId } = sandbox;
  await calls.call(SandboxService.method.stopSandbox, { sandboxId }, { sandboxId, attemptMs: undoMs });
}

function waits(error: DsecError, options: CreateOptions): boolean {
  return isReason(error, "CAPACITY_FULL") || (options.waitForQuota === true && isReason(error, "QUOTA_EXCEEDED"));
}

/** After an attempt without an answer only the platform's own word that nothing was made ends the doubt. */
function unknownIf(doubt: boolean, error: DsecError): DsecError {
  if (!doubt || error.outcome === "unknown" || !isInterruption(error)) return error;
  return new DsecError(error.reason, error.message, {
    outcomeUnknown: true,
    retryAfterMs: error.retryAfterMs,
    metadata: error.metadata,
    cause: error,
  });
}
