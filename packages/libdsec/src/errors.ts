// Errors of the library. Every failure is a DsecError from the one table; these tell the kinds apart.
import { DsecError, type ErrorReason } from "@dsec/api";

export { DsecError, type ErrorReason } from "@dsec/api";

/** A connection that failed. `outcome` is "unknown" once the request may have reached the server. */
export class ConnectionError extends DsecError {
  /** The request, or a part of it, was handed to the network. */
  readonly sent: boolean;

  constructor(message: string, sent: boolean, cause?: unknown) {
    super("UNAVAILABLE", message, { outcomeUnknown: sent, cause });
    this.sent = sent;
  }
}

/** True for an error of that reason in the table. */
export function isReason(error: unknown, ...reasons: ErrorReason[]): error is DsecError {
  return error instanceof DsecError && (reasons as string[]).includes(error.reason);
}

const gone = new Set(["SANDBOX_NOT_FOUND", "SANDBOX_ENDED", "SANDBOX_LOST", "AETHER_PROTOCOL", "EDGE_NOT_FOUND"]);
const faults = new Set([
  "SANDBOX_LOST",
  "AETHER_PROTOCOL",
  "UNAVAILABLE",
  "EDGE_UNREACHABLE",
  "HOSTD_UNAVAILABLE",
  "DATABASE_UNAVAILABLE",
  "LAUNCH_FAILED",
  "WRONG_SANDBOX",
  "INTERNAL",
  "DEADLINE_EXCEEDED",
  "FILE_WORKER_ENDED",
]);
const interruptions = new Set([
  "UNAVAILABLE",
  "EDGE_UNREACHABLE",
  "HOSTD_UNAVAILABLE",
  "DATABASE_UNAVAILABLE",
  "TOO_MANY_REQUESTS",
]);

/** The sandbox is not there any more; `error.metadata.end_reason` says why where that is known. */
export function isSandboxGone(error: unknown): error is DsecError {
  return error instanceof DsecError && gone.has(error.reason);
}

/** A fault of the platform or the way to it: drop the sample, do not score it. A command's own failure never is one. */
export function isInfrastructureError(error: unknown): error is DsecError {
  return (
    error instanceof DsecError && (faults.has(error.reason) || error.outcome === "unknown" || gone.has(error.reason))
  );
}

/** The same call may succeed in a moment: the way was interrupted, or the server is busy. */
export function isInterruption(error: unknown): error is DsecError {
  return error instanceof DsecError && interruptions.has(error.reason);
}

export function cancelled(cause?: unknown): DsecError {
  return new DsecError("CANCELLED", "the call was given up by its AbortSignal", { cause });
}
