// SandboxService, but for CreateSandbox, which reaches an edge as EdgeCreate.
import { DsecError, EndReason, type SandboxService, SandboxState } from "@dsec/api";
import type { Handlers } from "@dsec/rpc";
import { maximums } from "../defaults.ts";
import type { EdgeCall } from "../http/call.ts";
import type { Core } from "../lifecycle/core.ts";
import { type Ender, usageRecord } from "../lifecycle/end.ts";
import { checkRules, rulesNotices } from "../network/rules.ts";
import { tombstoneEvents, tombstoneInfo } from "../sandboxes/tombstones.ts";

export function sandboxService(core: Core, ender: Ender): Handlers<typeof SandboxService, EdgeCall> {
  const { registry, settings } = core;
  return {
    createSandbox() {
      throw new DsecError("NO_SUCH_METHOD", "CreateSandbox is answered by the apiserver; an edge takes EdgeCreate");
    },
    getSandbox(request, context) {
      return { sandbox: registry.get(request.sandboxId, context.principal).info(settings.edge) };
    },
    listSandboxes(request, context) {
      const { page, next } = registry.list(request, context.principal);
      return { sandboxes: page.map((sandbox) => sandbox.info(settings.edge)), nextPageToken: next };
    },
    async stopSandbox(request, context) {
      const found = registry.find(request.sandboxId, context.principal);
      if (!("record" in found)) return { sandbox: tombstoneInfo(found, settings.edge) };
      const keepMs = Number(request.keepMs);
      if (keepMs > maximums.keepMs) {
        throw new DsecError("INVALID_LIMIT", `keep_ms is ${keepMs}; at most ${maximums.keepMs} may be`);
      }
      if (found.state === SandboxState.STOPPED && keepMs > 0) {
        found.record.keepUntilMono = Math.max(found.record.keepUntilMono, core.clock.monoMs() + keepMs);
        core.records.save(found.record);
        return { sandbox: found.info(settings.edge) };
      }
      await ender.endAndWait(found, EndReason.STOPPED, { keepMs });
      const stone = core.tombstones.get(found.id);
      return { sandbox: stone ? tombstoneInfo(stone, settings.edge) : found.info(settings.edge) };
    },
    async deleteSandbox(request, context) {
      const found = registry.find(request.sandboxId, context.principal);
      if ("record" in found) await ender.endAndWait(found, EndReason.STOPPED);
      // A stop that keeps may have been under way: then its end comes first.
      if ("record" in found && found.state === SandboxState.STOPPED && registry.byId.has(found.id)) {
        await ender.endAndWait(found, EndReason.STOPPED);
      }
      return {};
    },
    extendSandbox(request, context) {
      const sandbox = registry.get(request.sandboxId, context.principal);
      sandbox.running();
      const by = Number(request.byMs);
      if (by > maximums.ttlMs) throw new DsecError("INVALID_LIMIT", `by_ms is ${by}; at most ${maximums.ttlMs} may be`);
      const until = core.clock.monoMs() + by;
      if (until > sandbox.record.expiresMono) {
        sandbox.record.expiresMono = until;
        sandbox.addEvent("EXTENDED");
        core.records.save(sandbox.record);
      }
      return { expiresAtMs: sandbox.info(settings.edge).expiresAtMs };
    },
    listEvents(request, context) {
      const found = registry.find(request.sandboxId, context.principal);
      const told = "record" in found ? found.record.events : tombstoneEvents(found);
      return {
        events: told.map(({ atMs, type, endReason, message }) => ({
          atMs: BigInt(atMs),
          type,
          endReason,
          message,
        })),
      };
    },
    async getUsage(request, context) {
      const sandbox = registry.get(request.sandboxId, context.principal);
      const kept = sandbox.record.usage;
      const usage =
        sandbox.state === SandboxState.RUNNING
          ? usageRecord(await core.hostd.call({ case: "usage", value: { sandboxId: sandbox.id } }, "usage"))
          : kept;
      if (!usage) throw new DsecError("SANDBOX_NOT_READY", `nothing is known yet of what ${sandbox.id} uses`);
      return {
        usage: {
          ...usage,
          memoryBytes: BigInt(usage.memoryBytes),
          peakMemoryBytes: BigInt(usage.peakMemoryBytes),
          diskBytes: BigInt(usage.diskBytes),
          oomKills: BigInt(usage.oomKills),
          pidsLimitHits: BigInt(usage.pidsLimitHits),
        },
      };
    },
    updateNetwork(request, context) {
      const sandbox = registry.get(request.sandboxId, context.principal);
      sandbox.running();
      const allow = { ...request.rules?.allow };
      checkRules(allow);
      const version = Number(request.version);
      if (version > sandbox.record.networkVersion) {
        sandbox.record.networkRules = allow;
        sandbox.record.networkVersion = version;
        sandbox.addEvent("NETWORK_UPDATED", `version ${version}`);
        core.records.save(sandbox.record);
      }
      return {
        version: BigInt(sandbox.record.networkVersion),
        notices: rulesNotices(sandbox.record.networkRules, "rules"),
      };
    },
  };
}
