// How failures are told: what happened and what to do next, and the exit code.
import { getSystemErrorMap } from "node:util";
import { CommanderError } from "commander";
import { safe } from "./output.ts";

/** 125 for a fault that is not the command's own, as docker has it. */
export class ExitError extends Error {
  readonly exitCode: number;
  constructor(exitCode: number, cause: unknown) {
    super(cause instanceof Error ? cause.message : String(cause), { cause });
    this.exitCode = exitCode;
  }
}

/** Prints an error to stderr; gives the exit code: 1, or 2 for wrong usage. */
interface Described {
  message?: string;
  next?: string;
  reason?: string;
  metadata?: Record<string, string>;
}

/** A system call here failed, on a file of the caller's. */
function isLocal(error: unknown): error is NodeJS.ErrnoException {
  return error instanceof Error && "syscall" in error && "errno" in error && "path" in error;
}

function localError({ errno, path, syscall }: NodeJS.ErrnoException): Described {
  const why = getSystemErrorMap().get(errno ?? 0)?.[1] ?? "failed";
  return { message: `${path}: ${why} (${syscall})`, next: "Look at this path on this machine.", reason: "LOCAL_FILE" };
}

export function report(error: unknown): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
  if (error instanceof ExitError) {
    report(error.cause);
    return error.exitCode;
  }
  const { message, next, reason, metadata } = isLocal(error) ? localError(error) : (error as Described);
  const ended = metadata?.["end_reason"];
  const said = message ?? String(error);
  const why = ended && !said.includes(`(${ended})`) ? ` (${ended})` : "";
  process.stderr.write(`dsec: ${safe(said + why)}\n`);
  if (next) process.stderr.write(`  next: ${next}\n`);
  if (reason === undefined && process.env["DSEC_DEBUG"]) process.stderr.write(`${(error as Error).stack}\n`);
  return 1;
}
