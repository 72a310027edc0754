// The nodes behind the platform, as placement sees them.
import { NodeService } from "@dsec/api";
import type { Calls } from "./transport/calls.ts";

export interface NodeInfo {
  edge: string;
  healthy: boolean;
  accepting: boolean;
  notAcceptingReason: string;
  cpus: number;
  memoryMb: number;
  /** What may be promised: size times overcommit. */
  cpuCoresCapacity: number;
  memoryMbCapacity: number;
  cpuCoresRequested: number;
  memoryMbRequested: number;
  sandboxes: number;
  maxSandboxes: number;
  /** Real use, 0 to 1. */
  cpuBusy: number;
  memoryMbAvailable: number;
  backends: string[];
  startedAt: Date;
}

export class Nodes {
  readonly #calls: Calls;

  constructor(calls: Calls) {
    this.#calls = calls;
  }

  async list(): Promise<NodeInfo[]> {
    const { nodes } = await this.#calls.call(NodeService.method.listNodes, {});
    return nodes.map((node) => ({
      edge: node.edge,
      healthy: node.healthy,
      accepting: node.accepting,
      notAcceptingReason: node.notAcceptingReason,
      cpus: node.cpus,
      memoryMb: Number(node.memoryMb),
      cpuCoresCapacity: node.cpuCoresCapacity,
      memoryMbCapacity: Number(node.memoryMbCapacity),
      cpuCoresRequested: node.cpuCoresRequested,
      memoryMbRequested: Number(node.memoryMbRequested),
      sandboxes: node.sandboxes,
      maxSandboxes: node.maxSandboxes,
      cpuBusy: node.cpuBusy,
      memoryMbAvailable: Number(node.memoryMbAvailable),
      backends: node.backends,
      startedAt: new Date(Number(node.startedAtMs)),
    }));
  }
}
