// The standing connection between edge and aether: made, watched, and made again once if it breaks.
import { setTimeout as sleep } from "node:timers/promises";
import { type AetherHelloReply, DsecError, SandboxState } from "@dsec/api";
import { AetherControl } from "../aether/control.ts";
import type { Sandbox } from "../sandboxes/sandbox.ts";
import { endedError } from "../sandboxes/tombstones.ts";
import { ProtocolError } from "../wire/frames.ts";
import type { Core } from "./core.ts";
import type { Ender } from "./end.ts";

const helloWithinMs = 10_000;
const causeWithinMs = 150;
/** What a call meets when its sandbox goes, by whoever saw it first: the connection, the wire's reader, aether itself. */
const breaks = new Set(["UNAVAILABLE", "AETHER_PROTOCOL", "SANDBOX_LOST"]);

export class Attacher {
  private readonly core: Core;
  private readonly ender: Ender;
  private readonly again = new Set<string>();

  constructor(core: Core, ender: Ender) {
    this.core = core;
    this.ender = ender;
  }

  /** Connects and says hello; calls may be sent on the control at once. */
  open(sandbox: Sandbox): AetherControl {
    sandbox.socketPath = this.core.socketPath(sandbox.record.slot);
    const control = new AetherControl(sandbox.socketPath, sandbox.id, (error) => {
      if (sandbox.control === control) void this.broken(sandbox, error);
    });
    sandbox.control = control;
    return control;
  }

  /** The hello of a fresh control, waited for at most 10 s. */
  async greeted(control: AetherControl): Promise<AetherHelloReply> {
    const timer = setTimeout(() => control.close(), helloWithinMs);
    try {
      return await control.hello;
    } finally {
      clearTimeout(timer);
    }
  }

  /** What a sandbox asks of the edge by itself. */
  wire(sandbox: Sandbox): void {
    sandbox.hostile = (error) => this.hostile(sandbox, error);
    if (this.core.hostdInfo?.diskLimit === "none") return;
    sandbox.diskIsFull = async () => {
      try {
        const value = { sandboxId: sandbox.id, tryDisk: true };
        return (await this.core.hostd.call({ case: "usage", value }, "usage")).diskFull;
      } catch {
        // The result of a command does not wait for a hostd that is away.
        return false;
      }
    };
  }

  /** aether broke the rules, or a stream saw so: nothing of the sandbox is believed any more. */
  hostile(sandbox: Sandbox, error: Error): void {
    this.core.log.error({ sandbox: sandbox.id, err: error }, "a supervisor broke the rules of the wire");
    this.ender.lost(sandbox, error instanceof DsecError ? error.reason : "AETHER_PROTOCOL");
  }

  private async broken(sandbox: Sandbox, error: Error | undefined): Promise<void> {
    sandbox.control = undefined;
    // The second break in a row is seen by who tries again.
    if (sandbox.state !== SandboxState.RUNNING || this.again.has(sandbox.id)) return;
    if (error instanceof ProtocolError || (error instanceof DsecError && error.reason === "WRONG_SANDBOX")) {
      this.hostile(sandbox, error);
      return;
    }
    this.again.add(sandbox.id);
    try {
      await this.greeted(this.open(sandbox));
    } catch {
      sandbox.control = undefined;
      // hostd knows the cause and says so by itself, most often before this.
      await Promise.race([sandbox.endBegan, sleep(causeWithinMs)]);
      this.ender.lost(sandbox, "AETHER_GONE");
    } finally {
      this.again.delete(sandbox.id);
    }
  }
}

/** Why a call on a running sandbox broke: its end, if that has begun or begins within a second, else `error`. */
export async function breakCause(core: Core, sandbox: Sandbox, error: DsecError): Promise<DsecError> {
  if (!breaks.has(error.reason)) return error;
  if (!sandbox.ending) await Promise.race([sandbox.endBegan, sleep(1000)]);
  const stone = core.tombstones.get(sandbox.id);
  if (!stone) return error;
  return endedError(stone);
}
