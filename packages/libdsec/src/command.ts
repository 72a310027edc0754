// A command in a sandbox: run to its end, or held by a handle while it goes on in the background.
import { CommandService, DsecError } from "@dsec/api";
import {
  type CommandLine,
  type CommandOptions,
  type ExecOptions,
  type InputSource,
  type Prepared,
  type PtyOptions,
  prepare,
} from "./command-options.ts";
import { isReason } from "./errors.ts";
import { HeadTail } from "./head-tail.ts";
import { InputWriter } from "./input.ts";
import { CommandStream } from "./output-stream.ts";
import { type CommandInfo, CommandResult, commandInfoOf } from "./results.ts";
import type { Calls } from "./transport/calls.ts";

const defaultCapBytes = 16 << 20;
/** One Wait call is at most this long, milliseconds. */
const waitStepMs = 240_000;

/** Runs a command to its end. @see Sandbox.exec */
export async function runCommand(
  calls: Calls,
  sandboxId: string,
  line: CommandLine,
  options: ExecOptions = {},
  sessionId = "",
): Promise<CommandResult> {
  const prepared = prepare(line, options, sessionId);
  const kill = killer(calls, sandboxId, prepared.commandId);
  if (options.onStdout || options.onStderr) return withCallbacks(calls, sandboxId, prepared, options, kill);
  if (prepared.feed !== undefined) await startPrepared(calls, sandboxId, prepared, options.signal);
  return fed(calls, sandboxId, prepared, kill, async () => {
    try {
      // A repeat with the same ID attaches, so this is harmless; the answer is what was recorded.
      const limit = prepared.spec.timeoutMs ? Number(prepared.spec.timeoutMs) + calls.requestMs : 0;
      const { result } = await calls.call(
        CommandService.method.exec,
        { sandboxId, commandId: prepared.commandId, spec: prepared.spec },
        { sandboxId, signal: options.signal, attemptMs: limit, long: true },
      );
      return CommandResult.fromWire(result);
    } catch (error) {
      if (options.signal?.aborted && options.killOnAbort) await kill();
      throw error;
    }
  });
}

async function withCallbacks(
  calls: Calls,
  sandboxId: string,
  prepared: Prepared,
  options: ExecOptions,
  kill: () => Promise<void>,
): Promise<CommandResult> {
  const cap = options.outputCapBytes || defaultCapBytes;
  const kept = { stdout: new HeadTail(cap), stderr: new HeadTail(cap) };
  const stream = streamPrepared(calls, sandboxId, prepared, options, kill);
  return fed(calls, sandboxId, prepared, kill, async () => {
    for await (const chunk of stream) {
      kept[chunk.stream].push(chunk.data, chunk.droppedBytes);
      await (chunk.stream === "stdout" ? options.onStdout : options.onStderr)?.(chunk.data);
    }
    return new CommandResult(
      prepared.commandId,
      await stream.outcome(),
      kept.stdout.collected(),
      kept.stderr.collected(),
    );
  });
}

/** Sends input beside `work`. A source that fails ends the command: it would wait for the rest for ever. */
async function fed<T>(
  calls: Calls,
  sandboxId: string,
  prepared: Prepared,
  kill: () => Promise<void>,
  work: () => Promise<T>,
): Promise<T> {
  if (prepared.feed === undefined) return work();
  const stop = new AbortController();
  const writer = new InputWriter(calls, sandboxId, prepared.commandId);
  const feeding = writer.feed(prepared.feed, stop.signal);
  try {
    const failed = new Promise<never>(
      (_, reject) => void feeding.catch((error) => void kill().then(() => reject(error))),
    );
    return await Promise.race([work(), failed]);
  } finally {
    stop.abort();
  }
}

/** Starts in the background; a repeat of the same ID finds the one that runs. */
export async function startPrepared(
  calls: Calls,
  sandboxId: string,
  prepared: Prepared,
  signal?: AbortSignal,
): Promise<CommandInfo | undefined> {
  const { command } = await calls.call(
    CommandService.method.start,
    { sandboxId, commandId: prepared.commandId, spec: prepared.spec },
    { sandboxId, signal },
  );
  return command ? commandInfoOf(command) : undefined;
}

export function streamPrepared(
  calls: Calls,
  sandboxId: string,
  prepared: Prepared,
  options: CommandOptions,
  kill = killer(calls, sandboxId, prepared.commandId),
): CommandStream {
  return new CommandStream(calls, {
    sandboxId,
    commandId: prepared.commandId,
    spec: prepared.spec,
    signal: options.signal,
    kill: options.killOnAbort ? kill : undefined,
  });
}

/** A stream whose input, where it has some, is sent while it is read. */
export function streamCommand(
  calls: Calls,
  sandboxId: string,
  line: CommandLine,
  options: CommandOptions = {},
): CommandStream {
  const prepared = prepare(line, options);
  if (prepared.feed !== undefined) {
    throw new DsecError(
      "INVALID_ARGUMENT",
      "stream() takes at most 1 MiB of stdin, as a string or bytes; use start() with stdinOpen for more",
    );
  }
  return streamPrepared(calls, sandboxId, prepared, options);
}

/** Ends the whole tree; what cannot be told any more is no error, since the caller has given up already. */
function killer(calls: Calls, sandboxId: string, commandId: string): () => Promise<void> {
  return async () => {
    const signal = AbortSignal.timeout(5_000);
    await calls
      .call(
        CommandService.method.signal,
        { sandboxId, commandId, signal: "SIGKILL", wholeTree: true },
        { sandboxId, signal },
      )
      .catch(() => {});
  };
}

/** A command that goes on by itself; any number of handles may hold one. */
export class Command {
  readonly id: string;
  readonly sandboxId: string;
  readonly #calls: Calls;
  readonly #input: InputWriter;
  #writing: Promise<unknown> = Promise.resolve();

  constructor(calls: Calls, sandboxId: string, id: string) {
    this.#calls = calls;
    this.sandboxId = sandboxId;
    this.id = id;
    this.#input = new InputWriter(calls, sandboxId, id);
  }

  /** State, times and outcome. @throws DsecError COMMAND_NOT_FOUND */
  async info(): Promise<CommandInfo> {
    const { command } = await this.#calls.call(CommandService.method.getCommand, this.#named(), {
      sandboxId: this.sandboxId,
    });
    if (!command) throw new DsecError("COMMAND_NOT_FOUND", `the answer holds no command ${this.id}`);
    return commandInfoOf(command);
  }

  /** Waits for the end. The result's output is what was recorded. */
  async wait(options: { signal?: AbortSignal } = {}): Promise<CommandResult> {
    for (;;) {
      const { result } = await this.#calls.call(
        CommandService.method.wait,
        { ...this.#named(), waitMs: BigInt(waitStepMs) },
        {
          sandboxId: this.sandboxId,
          signal: options.signal,
          long: true,
          attemptMs: waitStepMs + this.#calls.requestMs,
        },
      );
      if (result) return CommandResult.fromWire(result);
    }
  }

  /** The result if it has ended, else undefined; does not wait. */
  async poll(): Promise<CommandResult | undefined> {
    const { result } = await this.#calls.call(
      CommandService.method.wait,
      { ...this.#named(), waitMs: 0n },
      { sandboxId: this.sandboxId },
    );
    return result && CommandResult.fromWire(result);
  }

  /** Output from the offsets on (default: the beginning), until the command ends. Several readers do not disturb each other. */
  attach(options: { stdoutOffset?: number; stderrOffset?: number; signal?: AbortSignal } = {}): CommandStream {
    return new CommandStream(this.#calls, { ...options, sandboxId: this.sandboxId, commandId: this.id });
  }

  /** All output from the beginning, collected at the end of the command, up to `capBytes` a stream (head and tail). */
  async output(options: { capBytes?: number; signal?: AbortSignal } = {}): Promise<CommandResult> {
    const cap = options.capBytes ?? defaultCapBytes;
    const kept = { stdout: new HeadTail(cap), stderr: new HeadTail(cap) };
    const stream = this.attach(options.signal ? { signal: options.signal } : {});
    for await (const chunk of stream) kept[chunk.stream].push(chunk.data, chunk.droppedBytes);
    return new CommandResult(this.id, await stream.outcome(), kept.stdout.collected(), kept.stderr.collected());
  }

  /** Sends a signal (default SIGKILL) to the whole tree, or with `wholeTree: false` to the command's own process. */
  async kill(
    signal: NodeJS.Signals | number | (string & {}) = "SIGKILL",
    options: { wholeTree?: boolean } = {},
  ): Promise<void> {
    await this.#calls.call(
      CommandService.method.signal,
      { ...this.#named(), signal: String(signal), wholeTree: options.wholeTree ?? true },
      { sandboxId: this.sandboxId, harmless: signal === "SIGKILL" || signal === 9 },
    );
  }

  /** Writes to stdin, after what was written before; resolves when the command's side took it. */
  writeInput(data: string | Uint8Array, options: { end?: boolean } = {}): Promise<void> {
    const written = this.#writing.then(() => this.#input.write(data, options.end ?? false));
    this.#writing = written.catch(() => {});
    return written;
  }

  /** End of file on stdin. */
  closeInput(): Promise<void> {
    return this.writeInput(new Uint8Array(0), { end: true }).catch((error) => {
      if (!isReason(error, "STDIN_CLOSED")) throw error;
    });
  }

  /** Sends a whole source and then end of file. */
  async pipeInput(source: InputSource, options: { signal?: AbortSignal } = {}): Promise<void> {
    await this.#input.feed(source, options.signal ?? new AbortController().signal);
  }

  /** Size of its terminal, in characters. */
  async resize(size: Required<PtyOptions>): Promise<void> {
    await this.#calls.call(CommandService.method.resizePty, { ...this.#named(), size }, { sandboxId: this.sandboxId });
  }

  #named() {
    return { sandboxId: this.sandboxId, commandId: this.id };
  }
}
