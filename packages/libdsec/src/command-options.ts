// What may be said about a command, and its form on the wire.
import type { MessageInitShape } from "@bufbuild/protobuf";
import { type CommandSpecSchema, DsecError, randomBase32 } from "@dsec/api";

/** A string is sent as UTF-8; a stream in pieces as the command takes them. */
export type InputSource = string | Uint8Array | AsyncIterable<Uint8Array | string> | Iterable<Uint8Array | string>;

export interface PtyOptions {
  /** Characters; default 24 × 80. */
  rows?: number;
  cols?: number;
}

export interface CommandOptions {
  /** Absolute, or relative to the sandbox's working directory. */
  cwd?: string | undefined;
  /** Added to the sandbox's environment. */
  env?: Record<string, string> | undefined;
  /** The same, but in no history, log or event. */
  secretEnv?: Record<string, string> | undefined;
  /** Name or number, optionally ":group". Default: the sandbox's init user. */
  user?: string | undefined;
  /** Whole input, then end of file. Without it standard input is /dev/null. */
  stdin?: InputSource | undefined;
  /** Input comes later by `Command.writeInput`. */
  stdinOpen?: boolean | undefined;
  /** Milliseconds; at the end the whole process tree is killed and the result says `timedOut`. Default: none. */
  timeoutMs?: number | undefined;
  /** Run on a terminal; stderr is then part of stdout. */
  pty?: PtyOptions | boolean | undefined;
  /** Gives the call up. The command goes on, unless `killOnAbort`. */
  signal?: AbortSignal | undefined;
  /** An abort ends the command's whole tree as well. */
  killOnAbort?: boolean | undefined;
  /** Bytes recorded per stream, half head, half tail. Default 16 MiB, at most 64 MiB. */
  outputCapBytes?: number | undefined;
  /** [A-Za-z0-9_-]{1,64}; asking again with it attaches, it never runs twice. Default: a random one. */
  commandId?: string | undefined;
}

export interface ExecOptions extends CommandOptions {
  /** Called with each piece as it comes; what it returns is awaited, which slows the command. */
  onStdout?: ((data: Uint8Array) => void | Promise<void>) | undefined;
  onStderr?: ((data: Uint8Array) => void | Promise<void>) | undefined;
}

/** A program with its arguments (strings are sent as UTF-8), or text for a shell. */
export type CommandLine = readonly (string | Uint8Array)[] | { shell: string };

/** Standard input up to this many bytes travels with the start. */
const inlineInputBytes = 1 << 20;

export type Spec = MessageInitShape<typeof CommandSpecSchema>;

export interface Prepared {
  commandId: string;
  spec: Spec;
  /** Input that is too large for the start, or comes piece by piece. */
  feed: InputSource | undefined;
}

/** @throws DsecError INVALID_ARGUMENT for what the wire cannot say. */
export function prepare(line: CommandLine, options: CommandOptions, sessionId = ""): Prepared {
  const { stdin, pty } = options;
  const inline = typeof stdin === "string" ? Buffer.from(stdin) : stdin instanceof Uint8Array ? stdin : undefined;
  const whole = inline && inline.length <= inlineInputBytes ? inline : undefined;
  const feed = whole ? undefined : (inline ?? stdin);
  const spec: Spec = {
    what: "shell" in line ? { case: "shell", value: line.shell } : { case: "argv", value: { args: line.map(toBytes) } },
    cwd: options.cwd ?? "",
    env: options.env ?? {},
    secretEnv: options.secretEnv ?? {},
    user: options.user ?? "",
    stdinOpen: options.stdinOpen === true || feed !== undefined,
    timeoutMs: wholeNumber(options.timeoutMs, "timeoutMs"),
    sessionId,
    outputCapBytes: wholeNumber(options.outputCapBytes, "outputCapBytes"),
  };
  if (whole) spec.stdin = whole;
  if (pty)
    spec.pty = { rows: (pty === true ? undefined : pty.rows) ?? 24, cols: (pty === true ? undefined : pty.cols) ?? 80 };
  return { commandId: options.commandId ?? `c${randomBase32(20)}`, spec, feed };
}

export function toBytes(text: string | Uint8Array): Uint8Array {
  return typeof text === "string" ? Buffer.from(text) : text;
}

/** A number of the wire's uint64. @throws DsecError INVALID_ARGUMENT for what is negative, no number, or infinite. */
export function wholeNumber(value: number | undefined, name: string): bigint {
  if (value === undefined) return 0n;
  if (!Number.isFinite(value) || value < 0)
    throw new DsecError("INVALID_ARGUMENT", `${name} is ${value}; it must be a number of at least 0`);
  return BigInt(Math.ceil(value));
}
