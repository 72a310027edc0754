// Ends by time: life, idle, and how long a stopped sandbox's files are kept. All on the monotonic clock.
import { type AetherHelloReply, EndReason, SandboxState } from "@dsec/api";
import { AetherConnection } from "../aether/connection.ts";
import type { Sandbox } from "../sandboxes/sandbox.ts";
import type { Core } from "./core.ts";
import type { Ender } from "./end.ts";

const tickMs = 200;
const tidyMs = 60_000;
const askWithinMs = 5000;

export class Clocks {
  private readonly core: Core;
  private readonly ender: Ender;
  private timers: NodeJS.Timeout[] = [];
  private readonly asking = new Set<string>();

  constructor(core: Core, ender: Ender) {
    this.core = core;
    this.ender = ender;
  }

  start(): void {
    this.timers = [setInterval(() => this.tick(), tickMs), setInterval(() => this.core.tidy(), tidyMs)];
  }

  close(): void {
    for (const timer of this.timers) clearInterval(timer);
  }

  /** Ends what is due now. */
  tick(): void {
    const now = this.core.clock.monoMs();
    for (const sandbox of this.core.registry.byId.values()) {
      const { record } = sandbox;
      if (sandbox.state === SandboxState.STOPPED) {
        if (record.keepUntilMono <= now) void this.ender.end(sandbox, record.endReason);
      } else if (sandbox.state !== SandboxState.RUNNING) {
      } else if (record.expiresMono <= now) {
        void this.ender.end(sandbox, EndReason.TTL);
      } else if (record.idleMs > 0 && sandbox.callsUnderWay === 0 && sandbox.lastUseMono + record.idleMs <= now) {
        void this.checkIdle(sandbox);
      }
    }
  }

  /** No call came for long enough; aether knows whether a command runs or ended later than the last call. */
  private async checkIdle(sandbox: Sandbox): Promise<void> {
    if (this.asking.has(sandbox.id)) return;
    this.asking.add(sandbox.id);
    try {
      const before = sandbox.lastUseMono;
      const hello = await askHello(sandbox);
      const now = this.core.clock.monoMs();
      if (sandbox.state !== SandboxState.RUNNING || sandbox.callsUnderWay > 0 || sandbox.lastUseMono !== before) return;
      const usedAt = hello.runningCommands > 0 ? now : now - Number(hello.idleMs);
      sandbox.lastUseMono = Math.max(before, usedAt);
      if (sandbox.lastUseMono + sandbox.record.idleMs <= now) await this.ender.end(sandbox, EndReason.IDLE);
    } catch (error) {
      this.core.log.info({ sandbox: sandbox.id, err: error }, "a supervisor could not be asked whether it is idle");
    } finally {
      this.asking.delete(sandbox.id);
    }
  }
}

/** A fresh hello: how many commands run, and since when none does. */
export function askHello(sandbox: Sandbox): Promise<AetherHelloReply> {
  return new Promise((resolve, reject) => {
    const connection = new AetherConnection(sandbox.socketPath, sandbox.id, {
      onHello: (hello) => {
        resolve(hello);
        connection.close();
      },
      onReply: () => {},
      onClose: (error) => {
        clearTimeout(timer);
        reject(error ?? new Error("the connection ended"));
      },
    });
    const timer = setTimeout(() => connection.close(new Error(`no hello within ${askWithinMs} ms`)), askWithinMs);
  });
}
