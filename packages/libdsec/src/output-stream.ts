// Output of a command as it comes. A connection that breaks is taken up again at the offsets reached, so that an edge
// that was killed and started again is not seen.

import type { MessageInitShape } from "@bufbuild/protobuf";
import { create, toBinary } from "@bufbuild/protobuf";
import { CommandService, type CommandSpecSchema, DsecError, StreamRequestSchema } from "@dsec/api";
import { ConnectionError, cancelled, isInterruption, isReason } from "./errors.ts";
import { type CommandInfo, type CommandOutcome, commandInfoOf, outcomeOf } from "./results.ts";
import type { Calls } from "./transport/calls.ts";
import { delay, pause } from "./transport/retry.ts";
import { type CommandEvent, StreamParser } from "./transport/stream-parser.ts";

export interface OutputChunk {
  stream: "stdout" | "stderr";
  /** Valid as long as the caller keeps it. */
  data: Uint8Array;
  /** Offset of the first byte in its stream. */
  offset: number;
  /** Bytes just before it that are no longer kept; as a rule 0. */
  droppedBytes: number;
}

export interface StreamTarget {
  sandboxId: string;
  commandId: string;
  /** Absent: attach only. */
  spec?: MessageInitShape<typeof CommandSpecSchema> | undefined;
  stdoutOffset?: number | undefined;
  stderrOffset?: number | undefined;
  signal?: AbortSignal | undefined;
  /** Ends the command when the signal gives the stream up. */
  kill?: (() => Promise<void>) | undefined;
}

/** Iterate it once for the output; `outcome()` is how the command ended. */
export class CommandStream implements AsyncIterable<OutputChunk> {
  readonly commandId: string;
  readonly #calls: Calls;
  readonly #target: StreamTarget;
  readonly #offsets: { stdout: number; stderr: number };
  #started: CommandInfo | undefined;
  #outcome: CommandOutcome | undefined;
  #iterated = false;

  constructor(calls: Calls, target: StreamTarget) {
    this.#calls = calls;
    this.#target = target;
    this.commandId = target.commandId;
    this.#offsets = { stdout: target.stdoutOffset ?? 0, stderr: target.stderrOffset ?? 0 };
  }

  /** Offsets behind the last bytes given. */
  get offsets(): Readonly<{ stdout: number; stderr: number }> {
    return { ...this.#offsets };
  }

  /** Known once the first event has come. */
  get info(): CommandInfo | undefined {
    return this.#started;
  }

  /** How the command ended; reads what is left of the stream if nobody did. */
  async outcome(): Promise<CommandOutcome> {
    if (!this.#iterated) for await (const _ of this);
    if (!this.#outcome)
      throw new DsecError("CANCELLED", `the stream of command ${this.commandId} was left before its end`);
    return this.#outcome;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<OutputChunk, void, void> {
    if (this.#iterated)
      throw new DsecError("INVALID_ARGUMENT", "a command's stream can be read once; attach again for another reader");
    this.#iterated = true;
    const { signal } = this.#target;
    let end = 0;
    for (let round = 0; !this.#outcome; round++) {
      const progress = { events: 0 };
      try {
        yield* this.#attempt(progress);
        if (!this.#outcome) throw new ConnectionError("the stream ended before the command did", true);
      } catch (thrown) {
        if (this.#outcome) return;
        const error = await this.#given(thrown);
        const again = isInterruption(error) || isReason(error, "SLOW_READER");
        if (!again || signal?.aborted) throw error;
        const now = performance.now();
        if (progress.events > 0 || end === 0) {
          round = 0;
          end = now + this.#calls.retryMs;
        }
        const wait = pause(round, error.retryAfterMs);
        if (now + wait > end) throw outcomeUnknown(error, this.#started !== undefined);
        await delay(wait, signal).catch(async (abort) => {
          throw await this.#given(abort);
        });
      }
    }
  }

  /** The error to show; an abort becomes CANCELLED, and ends the command where that was asked. */
  async #given(error: unknown): Promise<DsecError> {
    const { signal, kill } = this.#target;
    if (!signal?.aborted)
      return error instanceof DsecError ? error : new DsecError("INTERNAL", String(error), { cause: error });
    if (kill) await kill();
    return isReason(error, "CANCELLED") ? error : cancelled(signal.reason);
  }

  async *#attempt(progress: { events: number }): AsyncGenerator<OutputChunk, void, void> {
    const { sandboxId, commandId, spec, signal } = this.#target;
    const message = create(StreamRequestSchema, {
      sandboxId,
      commandId,
      // Once it was seen to run, only attaching is right: an unknown ID then means that its record is gone.
      ...(spec && !this.#started && { spec }),
      stdoutOffset: BigInt(this.#offsets.stdout),
      stderrOffset: BigInt(this.#offsets.stderr),
    });
    const { body, finish } = await this.#calls.http.openLong({
      method: "POST",
      path: `/${CommandService.typeName}/Stream`,
      headers: { "content-type": "application/connect+proto", "connect-protocol-version": "1" },
      body: envelope(toBinary(StreamRequestSchema, message)),
      sandboxId,
      signal,
    });
    const parser = new StreamParser();
    try {
      const events: CommandEvent[] = [];
      for await (const part of body) {
        let failure: unknown;
        try {
          parser.push(part, events);
        } catch (error) {
          // What came before the failure in the same piece is given first.
          failure = error;
        }
        for (const event of events) {
          progress.events++;
          if (event.type === "output") {
            this.#offsets[event.stream] = event.offset + event.data.length;
            yield { stream: event.stream, data: event.data, offset: event.offset, droppedBytes: event.droppedBytes };
          } else if (event.type === "started") this.#started = commandInfoOf(event.info);
          else this.#outcome = outcomeOf(event.outcome);
        }
        events.length = 0;
        if (failure !== undefined) throw failure;
      }
      if (!parser.finished) throw new ConnectionError("the stream was cut", true);
    } catch (error) {
      if (error instanceof DsecError) throw error;
      throw new ConnectionError(`the stream broke: ${(error as Error).message}`, true, error);
    } finally {
      finish();
    }
  }
}

export function envelope(payload: Uint8Array): Uint8Array {
  const framed = Buffer.allocUnsafe(5 + payload.length);
  framed[0] = 0;
  framed.writeUInt32BE(payload.length, 1);
  framed.set(payload, 5);
  return framed;
}

function outcomeUnknown(error: DsecError, started: boolean): DsecError {
  if (error.outcome === "unknown" || !started) return error;
  return new DsecError(error.reason, error.message, { outcomeUnknown: true, metadata: error.metadata, cause: error });
}
