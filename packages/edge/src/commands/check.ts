// Commands as callers give them: checked here, before anything reaches a sandbox.
import { type CommandSpec, DsecError, type PtySize, printable, randomBase32 } from "@dsec/api";
import { checkVariables } from "../admission/environment.ts";
import { maximums } from "../defaults.ts";

const idForm = /^[A-Za-z0-9_-]{1,64}$/;
const largestArguments = 900 * 1024;

/** The caller's ID, or one made here. */
export function commandId(given: string): string {
  return given === "" ? `c${randomBase32(20)}` : checkId(given, "command_id");
}

export function checkId(id: string, field: string): string {
  if (!idForm.test(id)) {
    throw new DsecError("INVALID_ARGUMENT", `${field} is "${printable(id)}"; it must match ${idForm.source}`);
  }
  return id;
}

/** Throws EMPTY_COMMAND, INVALID_ARGUMENT, INVALID_PATH, INVALID_USER or TOO_LARGE. */
export function checkSpec(spec: CommandSpec | undefined): CommandSpec {
  if (!spec) throw new DsecError("EMPTY_COMMAND", "spec is missing");
  checkWhat(spec);
  if (spec.cwd.includes("\0") || spec.cwd.length > 4095)
    throw new DsecError("INVALID_PATH", `cwd "${printable(spec.cwd)}" is no path`);
  if (spec.user.includes("\0") || spec.user.length > 256)
    throw new DsecError("INVALID_USER", `"${printable(spec.user)}" is no user`);
  checkVariables(spec.env, "env");
  checkVariables(spec.secretEnv, "secret_env");
  if (spec.stdin.length > maximums.stdinBytes) {
    throw new DsecError(
      "TOO_LARGE",
      `stdin has ${spec.stdin.length} bytes; at most ${maximums.stdinBytes} may be, send more by WriteInput`,
    );
  }
  if (Number(spec.outputCapBytes) > maximums.outputCapBytes) {
    throw invalid(`output_cap_bytes is ${spec.outputCapBytes}; at most ${maximums.outputCapBytes} may be`);
  }
  if (spec.pty) checkSize(spec.pty);
  if (spec.sessionId !== "") {
    checkId(spec.sessionId, "session_id");
    if (spec.what.case !== "shell") throw invalid("a session runs shell text; argv was given");
    if (spec.pty) throw invalid("a command of a session cannot have a terminal of its own");
  }
  return spec;
}

export function checkSize(size: PtySize | undefined): PtySize {
  if (size && inRange(size.rows) && inRange(size.cols)) return size;
  throw invalid(`a terminal of ${size?.rows ?? 0} rows and ${size?.cols ?? 0} columns cannot be; each is 1 to 65535`);
}

function inRange(value: number): boolean {
  return value >= 1 && value <= 65_535;
}

function checkWhat(spec: CommandSpec): void {
  const { what } = spec;
  if (what.case === "shell") {
    if (what.value.trim() === "") throw new DsecError("EMPTY_COMMAND", "the shell text is empty");
    if (what.value.includes("\0")) throw invalid("the shell text holds a NUL byte");
    if (what.value.length > largestArguments) throw new DsecError("TOO_LARGE", "the shell text is larger than 900 KiB");
    return;
  }
  const args = what.case === "argv" ? what.value.args : [];
  const program = args[0];
  if (!program || Buffer.from(program).toString("latin1").trim() === "") {
    throw new DsecError("EMPTY_COMMAND", "argv names no program");
  }
  if (args.some((arg) => arg.includes(0))) throw invalid("an argument holds a NUL byte");
  const bytes = args.reduce((sum, arg) => sum + arg.length + 8, 0);
  if (bytes > largestArguments)
    throw new DsecError("TOO_LARGE", `the arguments have ${bytes} bytes; at most 900 KiB may be`);
}

const signals: Record<string, number> = {
  HUP: 1,
  INT: 2,
  QUIT: 3,
  ILL: 4,
  TRAP: 5,
  ABRT: 6,
  BUS: 7,
  FPE: 8,
  KILL: 9,
  USR1: 10,
  SEGV: 11,
  USR2: 12,
  PIPE: 13,
  ALRM: 14,
  TERM: 15,
  STKFLT: 16,
  CHLD: 17,
  CONT: 18,
  STOP: 19,
  TSTP: 20,
  TTIN: 21,
  TTOU: 22,
  URG: 23,
  XCPU: 24,
  XFSZ: 25,
  VTALRM: 26,
  PROF: 27,
  WINCH: 28,
  IO: 29,
  PWR: 30,
  SYS: 31,
};

/** "SIGTERM", "TERM" or "15" as a number, 1 to 64. */
export function signalNumber(name: string): number {
  const number = /^\d{1,2}$/.test(name) ? Number(name) : signals[name.replace(/^SIG/, "")];
  if (number !== undefined && number >= 1 && number <= 64) return number;
  throw invalid(`"${printable(name)}" is no signal`);
}

function invalid(message: string): DsecError {
  return new DsecError("INVALID_ARGUMENT", message);
}
