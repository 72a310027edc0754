// After a start of the edge, or of hostd: what lives goes on, what does not is told as lost, what nobody knows is ended.
import { EndReason, SandboxState } from "@dsec/api";
import type { SandboxRecord } from "../sandboxes/record.ts";
import { Sandbox } from "../sandboxes/sandbox.ts";
import type { Attacher } from "./attach.ts";
import type { Core } from "./core.ts";
import type { Ender } from "./end.ts";

const atOnce = 64;

export class Recovery {
  private readonly core: Core;
  private readonly ender: Ender;
  private readonly attacher: Attacher;

  constructor(core: Core, ender: Ender, attacher: Attacher) {
    this.core = core;
    this.ender = ender;
    this.attacher = attacher;
  }

  /** Reads what an earlier edge wrote and connects to the sandboxes that live. */
  async recover(): Promise<void> {
    const { core } = this;
    for (const line of core.journal.open()) {
      core.tombstones.replay(line);
      core.keys.replay(line);
    }
    const { records, bad } = core.records.load();
    for (const name of bad) core.log.error({ file: name }, "a sandbox file cannot be read; its sandbox is ended");
    const alive = new Set(records.map((record) => record.id));
    for (const id of core.keys.dropUnfinished((key) => alive.has(key) || core.tombstones.get(key) !== undefined)) {
      core.log.warn({ sandbox: id }, "a create was under way when the edge ended; it is undone");
    }
    for (let at = 0; at < records.length; at += atOnce) {
      await Promise.all(records.slice(at, at + atOnce).map((record) => this.adopt(record)));
    }
    core.tidy();
  }

  /** Compares with hostd's list: after each connection to it. */
  async reconcile(): Promise<void> {
    const { core } = this;
    core.hostdInfo = await core.hostd.call({ case: "info", value: {} }, "info");
    const { missing, cgroups, diskLimit, slots } = core.hostdInfo;
    core.ledger.limitTo(slots);
    core.log.info({ missing, cgroups, diskLimit, slots }, "hostd is connected");
    const ours = [...core.registry.byId.values()].filter(
      (sandbox) => sandbox.state === SandboxState.RUNNING || sandbox.state === SandboxState.STOPPED,
    );
    const { sandboxes } = await core.hostd.call({ case: "list", value: {} }, "sandboxes");
    const theirs = new Map(sandboxes.map((sandbox) => [sandbox.sandboxId, sandbox]));
    for (const sandbox of ours) {
      const known = theirs.get(sandbox.id);
      if (sandbox.state === SandboxState.STOPPED) {
        if (!known?.kept) void this.ender.end(sandbox, sandbox.record.endReason);
      } else if (!known?.alive) {
        this.ender.lost(sandbox, "AETHER_GONE");
      }
    }
    for (const id of theirs.keys()) {
      if (core.registry.byId.has(id)) continue;
      core.log.warn({ sandbox: id }, "hostd has a sandbox that the edge does not know; it is ended");
      void this.ender.stopInHostd(id, false);
    }
  }

  private async adopt(record: SandboxRecord): Promise<void> {
    const { core } = this;
    const sandbox = new Sandbox(record, record.kept ? SandboxState.STOPPED : SandboxState.RUNNING, core.clock);
    this.attacher.wire(sandbox);
    core.registry.add(sandbox);
    if (record.bootId !== core.bootId) {
      core.ledger.adopt(record.project, record);
      sandbox.state = SandboxState.RUNNING;
      void this.ender.end(sandbox, EndReason.NODE_REBOOT);
      return;
    }
    if (record.kept) return;
    core.ledger.adopt(record.project, record);
    const control = this.attacher.open(sandbox);
    try {
      const hello = await this.attacher.greeted(control);
      sandbox.lastUseMono = core.clock.monoMs() - Number(hello.idleMs);
    } catch (error) {
      core.log.warn({ sandbox: record.id, err: error }, "a sandbox did not live through the edge's absence");
      this.ender.lost(sandbox, "AETHER_GONE");
    }
  }
}
