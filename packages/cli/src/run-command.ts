// Runs one command with our own input and output, and ends as it ended.

import { fstatSync } from "node:fs";
import { constants } from "node:os";
import type { CommandOptions, CommandOutcome, CommandStream, OutputChunk, Sandbox } from "@dsec/libdsec";
import { whenOutputIsLost } from "./lost-output.ts";
import { note } from "./output.ts";

/** Shell convention: 128 + the signal's number; 124 for a timeout, as timeout(1). */
export function exitCodeOf(outcome: CommandOutcome): number {
  if (outcome.timedOut) return 124;
  if (outcome.signal) return 128 + (constants.signals[outcome.signal as NodeJS.Signals] ?? 0);
  return outcome.exitCode ?? 1;
}

/** Streams until the end. Input is passed where it is a pipe, a file or a socket. */
export async function runAttached(
  sandbox: Sandbox,
  argv: string[],
  options: CommandOptions & { passInput?: boolean },
): Promise<number> {
  const { passInput, ...rest } = options;
  let stream: CommandStream;
  let end: (() => Promise<void>) | undefined;
  if (passInput ?? inputIsPiped()) {
    const { signal, killOnAbort: _, ...start } = rest;
    const command = await sandbox.start(argv, { ...start, ...(signal && { signal }), stdin: process.stdin });
    stream = command.attach(signal ? { signal } : {});
    if (rest.killOnAbort) end = () => command.kill().catch(() => {});
  } else stream = sandbox.stream(argv, rest);
  try {
    for await (const chunk of stream) {
      await passOn(chunk);
    }
  } catch (error) {
    if (options.signal?.aborted) await end?.();
    throw error;
  }
  const outcome = await stream.outcome();
  if (outcome.timedOut) note("the command was ended at its time limit");
  else if (outcome.oomKilled) note("the sandbox's memory limit ended the command");
  else if (outcome.limitHit.length > 0) note(`the sandbox met its limit of ${outcome.limitHit.join(" and ")}`);
  return exitCodeOf(outcome);
}

/** To our own stdout or stderr; what is missing before it is said. */
export async function passOn({ stream, data, droppedBytes }: OutputChunk): Promise<void> {
  // In a pipe too: whoever goes on with the output must know that it is not whole.
  if (droppedBytes > 0) process.stderr.write(`dsec: ${droppedBytes} bytes of ${stream} are no longer kept\n`);
  await write(stream === "stdout" ? process.stdout : process.stderr, data);
}

function inputIsPiped(): boolean {
  if (process.stdin.isTTY) return false;
  try {
    const stats = fstatSync(0);
    return stats.isFIFO() || stats.isFile() || stats.isSocket();
  } catch {
    return false;
  }
}

function write(to: NodeJS.WriteStream, data: Uint8Array): Promise<void> | void {
  if (to.destroyed || to.write(data)) return;
  return new Promise((resolve) => {
    const done = () => {
      to.off("drain", done).off("error", done).off("close", done);
      resolve();
    };
    to.once("drain", done).once("error", done).once("close", done);
  });
}

/** Aborts at the first SIGINT or SIGTERM, or when nobody takes the output any more, so that what was begun can be put away; a second one ends us at once. */
export function untilInterrupted(): { signal: AbortSignal; code: () => number | undefined } {
  const abort = new AbortController();
  let code: number | undefined;
  whenOutputIsLost((value) => {
    code ??= value;
    abort.abort();
  });
  for (const [name, value] of [
    ["SIGINT", 130],
    ["SIGTERM", 143],
    ["SIGHUP", 129],
  ] as const) {
    process.on(name, () => {
      if (code !== undefined) process.exit(value);
      code = value;
      abort.abort();
    });
  }
  return { signal: abort.signal, code: () => code };
}
