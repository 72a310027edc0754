// The end of a sandbox, by whatever reason: once, in order, and with nothing left behind.
import { setTimeout as sleep } from "node:timers/promises";
import { DsecError, EndReason, type HostdStopped, printable, SandboxState, type Usage } from "@dsec/api";
import { endReasonName } from "../sandboxes/reasons.ts";
import type { UsageRecord } from "../sandboxes/record.ts";
import type { Sandbox } from "../sandboxes/sandbox.ts";
import type { Core } from "./core.ts";
import { within } from "./within.ts";

const answerWithinMs = 15_000;
const retryMs = 500;
const longestRetryMs = 10_000;

export interface EndOptions {
  /** Milliseconds for which the writable layer stays; 0: it goes at once. */
  readonly keepMs?: number;
  readonly message?: string;
}

export class Ender {
  private readonly core: Core;
  private closed = false;

  constructor(core: Core) {
    this.core = core;
  }

  /** No more retries of what hostd did not do yet; the next edge finds it out by itself. */
  close(): void {
    this.closed = true;
  }

  /** Ends it and waits until hostd has done so; HOSTD_UNAVAILABLE, outcome unknown, where that takes too long. */
  async endAndWait(sandbox: Sandbox, reason: EndReason, options: EndOptions = {}): Promise<void> {
    const ending = this.end(sandbox, reason, options);
    await within(
      answerWithinMs,
      ending,
      () =>
        new DsecError("HOSTD_UNAVAILABLE", `the end of ${sandbox.id} goes on; hostd did not answer yet`, {
          outcomeUnknown: true,
        }),
    );
  }

  /** Begins the end; a second call joins the first. What was kept is removed. */
  end(sandbox: Sandbox, reason: EndReason, options: EndOptions = {}): Promise<void> {
    if (sandbox.state === SandboxState.STOPPED) return this.dropKept(sandbox);
    sandbox.ending ??= this.run(sandbox, reason, options);
    return sandbox.ending;
  }

  /** The sandbox is gone without our doing. */
  lost(sandbox: Sandbox, cause: string): void {
    // One that is being made fails by the connection's end; its maker cleans up.
    if (sandbox.state === SandboxState.CREATING) {
      sandbox.control?.close();
      return;
    }
    if (sandbox.ending || sandbox.state === SandboxState.STOPPED) return;
    const reason = cause === "OOM" ? EndReason.OOM : EndReason.LOST;
    this.core.log.warn({ sandbox: sandbox.id, cause: printable(cause) }, "a sandbox was lost");
    void this.end(sandbox, reason, { message: printable(cause) });
  }

  /** Asks hostd until it has done it; undefined where this edge ends first. */
  async stopInHostd(id: string, keep: boolean): Promise<HostdStopped | undefined> {
    for (let waitMs = retryMs; !this.closed; waitMs = Math.min(waitMs * 2, longestRetryMs)) {
      try {
        return await this.core.hostd.call({ case: "stop", value: { sandboxId: id, keep } }, "stopped");
      } catch (error) {
        if (!(error instanceof DsecError && error.reason === "HOSTD_UNAVAILABLE")) {
          this.core.log.error({ err: error, sandbox: id }, "hostd could not stop a sandbox");
        }
        await sleep(waitMs, undefined, { ref: false });
      }
    }
    return undefined;
  }

  private async run(sandbox: Sandbox, reason: EndReason, options: EndOptions): Promise<void> {
    const { core } = this;
    const { record } = sandbox;
    const wasMade = sandbox.making;
    const keep = (options.keepMs ?? 0) > 0 && sandbox.state === SandboxState.RUNNING;
    record.endReason = reason;
    record.endedAtMs = core.clock.wallMs();
    sandbox.state = reason === EndReason.LOST ? SandboxState.LOST : SandboxState.STOPPING;
    sandbox.addEvent("STOPPING", options.message, reason);
    core.registry.generation++;
    if (keep) {
      record.kept = true;
      record.keepUntilMono = core.clock.monoMs() + (options.keepMs ?? 0);
      core.records.save(record);
    } else {
      this.bury(sandbox, reason, options.message ?? "");
    }
    core.keys.ended(sandbox.id, record.endedAtMs);
    sandbox.letGo();
    sandbox.tellEndBegan();
    await wasMade?.catch(() => {});
    const stopped = await this.stopInHostd(sandbox.id, keep);
    core.ledger.release(record.project, record);
    if (keep) {
      if (stopped?.usage) record.usage = usageRecord(stopped.usage);
      sandbox.addEvent("ENDED", options.message, reason);
      sandbox.state = SandboxState.STOPPED;
      sandbox.ending = undefined;
      core.records.save(record);
    }
    core.registry.generation++;
    core.log.info({ sandbox: sandbox.id, reason: endReasonName(reason), kept: keep }, "a sandbox ended");
  }

  /** From here on only its tombstone is known. On disk first, so that a crash cannot bring it back. */
  private bury(sandbox: Sandbox, reason: EndReason, message: string): void {
    const { record } = sandbox;
    this.core.tombstones.add({
      id: record.id,
      project: record.project,
      reason,
      endedAtMs: record.endedAtMs,
      createdAtMs: record.createdAtMs,
      message,
    });
    this.core.records.remove(record.id);
    this.core.registry.remove(record.id);
  }

  private dropKept(sandbox: Sandbox): Promise<void> {
    sandbox.ending ??= (async () => {
      this.bury(sandbox, sandbox.record.endReason, "");
      await this.stopInHostd(sandbox.id, false);
      this.core.log.info({ sandbox: sandbox.id }, "what was kept of a sandbox is gone");
    })();
    return sandbox.ending;
  }
}

export function usageRecord(usage: Usage): UsageRecord {
  return {
    cpuSeconds: usage.cpuSeconds,
    memoryBytes: Number(usage.memoryBytes),
    peakMemoryBytes: Number(usage.peakMemoryBytes),
    diskBytes: Number(usage.diskBytes),
    processes: usage.processes,
    oomKills: Number(usage.oomKills),
    pidsLimitHits: Number(usage.pidsLimitHits),
  };
}
