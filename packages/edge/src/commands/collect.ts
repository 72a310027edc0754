// Output collected up to a cap: the head and the tail are kept, the middle is counted.
import { type CommandOutcome, type CommandSpec, DsecError } from "@dsec/api";
import type { Output } from "../aether/output.ts";
import { defaults } from "../defaults.ts";
import type { Sandbox } from "../sandboxes/sandbox.ts";
import { type AttachCall, AttachedCommand } from "./attached.ts";
import { Head, Tail } from "./pieces.ts";

/** What is kept of one stream, in pieces: joining 16 MiB holds up everybody else for tens of milliseconds. */
export interface Kept {
  readonly parts: readonly Uint8Array[];
  /** Bytes left out between head and tail. */
  readonly droppedBytes: number;
  /** Where in the parts they are missing, when there are any. */
  readonly gapAt: number;
}

export interface Collected {
  readonly commandId: string;
  readonly outcome: CommandOutcome;
  readonly stdout: Kept;
  readonly stderr: Kept;
}

/** One stream. Keeps at most `cap` bytes, half of them from the beginning; keeps no view of what it is given. */
export class Collector {
  private readonly headCap: number;
  private readonly head = new Head();
  private readonly tail: Tail;
  private dropped = 0;
  private gap = false;

  constructor(cap: number) {
    this.headCap = Math.ceil(cap / 2);
    this.tail = new Tail(cap - this.headCap);
  }

  add(output: Output): void {
    if (output.dropped > 0) this.addGap(output.dropped);
    for (const part of output.parts) this.addPart(part);
  }

  result(): Kept {
    return {
      parts: [...this.head.parts, ...this.tail.parts()],
      droppedBytes: this.dropped,
      gapAt: this.dropped > 0 ? this.head.bytes : 0,
    };
  }

  private addGap(bytes: number): void {
    this.dropped += bytes;
    // Only one gap is told: what lies between two of them is dropped too.
    if (this.gap) this.dropped += this.tail.bytes;
    else for (const part of this.tail.parts()) this.head.add(part);
    this.tail.clear();
    this.gap = true;
  }

  private addPart(part: Uint8Array): void {
    let rest = part;
    if (!this.gap && this.head.bytes < this.headCap) {
      const taken = rest.subarray(0, this.headCap - this.head.bytes);
      this.head.add(taken);
      rest = rest.subarray(taken.length);
    }
    if (rest.length === 0) return;
    const pushedOut = this.tail.add(rest);
    if (pushedOut === 0) return;
    this.dropped += pushedOut;
    this.gap = true;
  }
}

export interface CollectOptions {
  /** Let go of the command when this fires; it goes on. */
  readonly signal?: AbortSignal;
  readonly cap?: number;
}

/** Starts the command (or attaches to the one of that ID) and waits for its end. */
export async function runCollected(
  sandbox: Sandbox,
  commandId: string,
  spec: CommandSpec,
  options: CollectOptions = {},
): Promise<Collected> {
  const cap = Number(spec.outputCapBytes) || defaults.outputCapBytes;
  const result = await collect(sandbox, commandId, { start: spec }, { ...options, cap });
  if (!result) throw new DsecError("INTERNAL", `the command ${commandId} was answered without its outcome`);
  return result;
}

/** Collects an attached command; undefined where it still runs and only the record was asked for. */
export function collect(
  sandbox: Sandbox,
  commandId: string,
  call: AttachCall,
  options: CollectOptions,
): Promise<Collected | undefined> {
  return new Promise((resolve, reject) => {
    const cap = options.cap ?? defaults.outputCapBytes;
    const stdout = new Collector(cap);
    const stderr = new Collector(cap);
    const attached = new AttachedCommand(sandbox, commandId, call, {
      onOutput: (output) => {
        (output.stream === "stdout" ? stdout : stderr).add(output);
        attached.lend()();
      },
      onEnd: (outcome, error) => {
        options.signal?.removeEventListener("abort", abort);
        if (error) return reject(error);
        if (!outcome) return resolve(undefined);
        resolve({ commandId, outcome, stdout: stdout.result(), stderr: stderr.result() });
      },
    });
    function abort() {
      attached.detach();
      reject(goneError(options.signal));
    }
    if (options.signal?.aborted) abort();
    else options.signal?.addEventListener("abort", abort, { once: true });
  });
}

/** Why the caller's signal fired: its time is over, or it left. */
export function goneError(signal: AbortSignal | undefined): DsecError {
  const late = signal && DsecError.from(signal.reason).reason === "DEADLINE_EXCEEDED";
  return late
    ? new DsecError("DEADLINE_EXCEEDED", "the time for the call is over; the command goes on", { outcomeUnknown: true })
    : new DsecError("CANCELLED", "the caller left; the command goes on", { outcomeUnknown: true });
}
