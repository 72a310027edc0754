// EdgeService: what the control plane asks.
import { DsecError, type EdgeService, type NodeStatus, printable } from "@dsec/api";
import type { Handlers } from "@dsec/rpc";
import { isAtOrBelow } from "../auth/principal.ts";
import type { EdgeCall } from "../http/call.ts";
import type { Core } from "../lifecycle/core.ts";
import type { Creator } from "../lifecycle/create.ts";

/** What the layers' part removes from the disk, once hostd has let go of it. */
export interface LayerRemover {
  remove(digest: string): Promise<void>;
}

export function edgeService(
  core: Core,
  creator: Creator,
  layers: LayerRemover,
): Handlers<typeof EdgeService, EdgeCall> {
  return {
    snapshot() {
      return { status: nodeStatus(core) };
    },
    askCreateKey(request, context) {
      const principal = context.principal;
      if (!isAtOrBelow(request.project, principal.project)) {
        throw new DsecError(
          "PROJECT_NOT_FOUND",
          `no project "${printable(request.project)}" at or below ${principal.project}`,
        );
      }
      const { sandboxId, digest, supersededBy } = core.keys.ask(
        request.project,
        request.createKey,
        Number(request.attempt),
        core.clock.wallMs(),
      );
      const differ = sandboxId !== "" && digest !== request.argumentsDigest;
      return { sandboxId, argumentsDiffer: differ, supersededBy: BigInt(supersededBy) };
    },
    async edgeCreate(request, context) {
      const sandbox = await creator.create(request, context.principal);
      return { sandbox: sandbox.info(core.settings.edge) };
    },
    edgeList(request, context) {
      const filter = request.filter;
      if (!filter) throw new DsecError("INVALID_ARGUMENT", "filter is missing");
      const { page } = core.registry.list(filter, context.principal);
      return { sandboxes: page.map((sandbox) => sandbox.info(core.settings.edge)) };
    },
    async dropLayer(request) {
      for (const digest of request.digests) {
        if (!/^sha256:[0-9a-f]{64}$/.test(digest)) {
          throw new DsecError("INVALID_ARGUMENT", `"${printable(digest)}" is no digest of a layer`);
        }
      }
      for (const digest of request.digests) {
        await core.hostd.call({ case: "dropLayer", value: { digest } }, "done");
        await layers.remove(digest);
      }
      return {};
    },
  };
}

function nodeStatus(core: Core): Omit<NodeStatus, "$typeName"> & { $typeName: "dsec.v1.NodeStatus" } {
  const { ledger, meter, registry, settings } = core;
  const use = meter.use();
  const reason = core.hostd.connected ? ledger.refusal() : "hostd does not answer";
  return {
    $typeName: "dsec.v1.NodeStatus",
    edge: settings.edge,
    healthy: core.hostd.connected,
    accepting: reason === "",
    notAcceptingReason: reason,
    cpus: meter.size.cpus,
    memoryMb: BigInt(meter.size.memoryMb),
    cpuCoresCapacity: ledger.cpuCoresCapacity,
    memoryMbCapacity: BigInt(Math.floor(ledger.memoryMbCapacity)),
    maxSandboxes: ledger.maxSandboxes,
    cpuCoresRequested: ledger.total.cpuCores,
    memoryMbRequested: BigInt(ledger.total.memoryMb),
    sandboxes: ledger.total.sandboxes,
    cpuBusy: use.cpuBusy,
    memoryMbAvailable: BigInt(use.memoryAvailableMb),
    projects: [...ledger.projects].map(([project, sum]) => ({
      $typeName: "dsec.v1.ProjectUse",
      project,
      sandboxes: sum.sandboxes,
      cpuCores: sum.cpuCores,
      memoryMb: BigInt(sum.memoryMb),
    })),
    backends: ["container"],
    atMs: BigInt(core.clock.wallMs()),
    generation: BigInt(registry.generation),
    startedAtMs: BigInt(core.startedAtMs),
  };
}
