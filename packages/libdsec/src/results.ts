// What a command gave. A command that ran has a result, whatever it returned; faults of the platform are errors.
import type { CommandInfo as WireInfo, CommandOutcome as WireOutcome, CommandResult as WireResult } from "@dsec/api";
import { commandStateName, limitName } from "./names.ts";

export interface CommandOutcome {
  /** Null when a signal ended it. 127: no such program; 126: it may not run. */
  exitCode: number | null;
  /** "SIGKILL", or null when it exited. */
  signal: string | null;
  timedOut: boolean;
  oomKilled: boolean;
  /** Limits of the sandbox that it met: "memory", "pids", "disk". */
  limitHit: string[];
  /** Milliseconds of wall time. */
  durationMs: number;
  /** Where the backend knows them. */
  peakMemoryBytes: number | null;
  cpuTimeMs: number | null;
  /** The session's shell was gone, so this call ran in a fresh one. */
  sessionRestarted: boolean;
  /** Bytes written in all, kept or not. */
  stdoutTotalBytes: number;
  stderrTotalBytes: number;
}

export function outcomeOf(wire: WireOutcome | undefined): CommandOutcome {
  return {
    exitCode: wire?.exitCode ?? null,
    signal: wire?.signal ? wire.signal : null,
    timedOut: wire?.timedOut ?? false,
    oomKilled: wire?.oomKilled ?? false,
    limitHit: (wire?.limitHit ?? []).map(limitName),
    durationMs: wire?.durationMs ?? 0,
    peakMemoryBytes: wire?.peakMemoryBytes === undefined ? null : Number(wire.peakMemoryBytes),
    cpuTimeMs: wire?.cpuTimeMs ?? null,
    sessionRestarted: wire?.sessionRestarted ?? false,
    stdoutTotalBytes: Number(wire?.stdoutBytes ?? 0n),
    stderrTotalBytes: Number(wire?.stderrBytes ?? 0n),
  };
}

/** Bytes kept of one stream: all, or head and tail with a gap. */
export interface Collected {
  data: Uint8Array;
  droppedBytes: number;
  /** Where in `data` the gap is. */
  gapAt: number;
}

const nothing: Collected = { data: new Uint8Array(0), droppedBytes: 0, gapAt: 0 };

export class CommandResult implements CommandOutcome {
  readonly commandId: string;
  readonly exitCode: number | null;
  readonly signal: string | null;
  readonly timedOut: boolean;
  readonly oomKilled: boolean;
  readonly limitHit: string[];
  readonly durationMs: number;
  readonly peakMemoryBytes: number | null;
  readonly cpuTimeMs: number | null;
  readonly sessionRestarted: boolean;
  readonly stdoutTotalBytes: number;
  readonly stderrTotalBytes: number;
  /** The bytes as written; with `truncated`, head and tail. */
  readonly stdoutBytes: Uint8Array;
  readonly stderrBytes: Uint8Array;
  /** Bytes left out of each stream; 0: nothing is missing. */
  readonly truncated: { stdout: number; stderr: number };
  /** Where in the bytes the gap is, when some were left out. */
  readonly gapAt: { stdout: number; stderr: number };
  #stdout: string | undefined;
  #stderr: string | undefined;

  constructor(commandId: string, outcome: CommandOutcome, stdout: Collected = nothing, stderr: Collected = nothing) {
    this.commandId = commandId;
    this.exitCode = outcome.exitCode;
    this.signal = outcome.signal;
    this.timedOut = outcome.timedOut;
    this.oomKilled = outcome.oomKilled;
    this.limitHit = outcome.limitHit;
    this.durationMs = outcome.durationMs;
    this.peakMemoryBytes = outcome.peakMemoryBytes;
    this.cpuTimeMs = outcome.cpuTimeMs;
    this.sessionRestarted = outcome.sessionRestarted;
    this.stdoutTotalBytes = outcome.stdoutTotalBytes;
    this.stderrTotalBytes = outcome.stderrTotalBytes;
    this.stdoutBytes = stdout.data;
    this.stderrBytes = stderr.data;
    this.truncated = { stdout: stdout.droppedBytes, stderr: stderr.droppedBytes };
    this.gapAt = { stdout: stdout.gapAt, stderr: stderr.gapAt };
  }

  static fromWire(wire: WireResult | undefined): CommandResult {
    const collected = (output: WireResult["stdout"]): Collected =>
      output ? { data: output.data, droppedBytes: Number(output.droppedBytes), gapAt: Number(output.gapAt) } : nothing;
    return new CommandResult(
      wire?.commandId ?? "",
      outcomeOf(wire?.outcome),
      collected(wire?.stdout),
      collected(wire?.stderr),
    );
  }

  /** As UTF-8; what is no UTF-8 becomes U+FFFD (the bytes are in `stdoutBytes`). */
  get stdout(): string {
    this.#stdout ??= text(this.stdoutBytes);
    return this.#stdout;
  }

  get stderr(): string {
    this.#stderr ??= text(this.stderrBytes);
    return this.#stderr;
  }

  /** It exited with 0. */
  get ok(): boolean {
    return this.exitCode === 0;
  }

  toJSON(): Record<string, unknown> {
    const { stdoutBytes: _, stderrBytes: __, ...rest } = this;
    return { ...rest, stdout: this.stdout, stderr: this.stderr };
  }
}

function text(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("utf8");
}

export interface CommandInfo {
  commandId: string;
  /** "running", "ended". */
  state: string;
  startedAt: Date;
  endedAt: Date | null;
  outcome: CommandOutcome | null;
  /** Arguments as UTF-8, cut to 4 KiB; or the shell text. */
  argv: string[];
  shell: string | null;
  cwd: string;
  user: string;
  envNames: string[];
  sessionId: string | null;
  pty: boolean;
}

export function commandInfoOf(wire: WireInfo): CommandInfo {
  return {
    commandId: wire.commandId,
    state: commandStateName(wire.state),
    startedAt: new Date(Number(wire.startedAtMs)),
    endedAt: wire.endedAtMs > 0n ? new Date(Number(wire.endedAtMs)) : null,
    outcome: wire.outcome ? outcomeOf(wire.outcome) : null,
    argv: wire.argv.map(text),
    shell: wire.shell === "" ? null : wire.shell,
    cwd: wire.cwd,
    user: wire.user,
    envNames: wire.envNames,
    sessionId: wire.sessionId === "" ? null : wire.sessionId,
    pty: wire.pty,
  };
}
