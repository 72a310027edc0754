// What the node has promised: sums of requests, by project too, against its size times the overcommit.
import { DsecError } from "@dsec/api";
import { node } from "../defaults.ts";
import type { NodeMeter } from "./node.ts";

export interface Requests {
  readonly memoryRequestMb: number;
  readonly cpuCoresRequest: number;
}

export interface Use {
  sandboxes: number;
  cpuCores: number;
  memoryMb: number;
}

export interface LedgerLimits {
  readonly overcommitCpu: number;
  readonly overcommitMemory: number;
  readonly maxSandboxes: number;
}

const full = { retryAfterMs: 1000 } as const;

export class Ledger {
  readonly total: Use = { sandboxes: 0, cpuCores: 0, memoryMb: 0 };
  readonly projects = new Map<string, Use>();
  maxSandboxes: number;
  readonly cpuCoresCapacity: number;
  readonly memoryMbCapacity: number;
  private readonly configured: number;
  private readonly memoryFloorMb: number;
  private readonly meter: NodeMeter;

  constructor(limits: LedgerLimits, meter: NodeMeter) {
    this.meter = meter;
    this.configured = limits.maxSandboxes;
    this.maxSandboxes = limits.maxSandboxes;
    this.cpuCoresCapacity = meter.size.cpus * limits.overcommitCpu;
    this.memoryMbCapacity = meter.size.memoryMb * limits.overcommitMemory;
    this.memoryFloorMb = Math.max(node.memoryFloorMb, meter.size.memoryMb * node.memoryFloorShare);
  }

  /** hostd has only so many slots. */
  limitTo(slots: number): void {
    this.maxSandboxes = Math.min(this.configured, slots);
  }

  /** Why the node takes no new sandbox of the default size now; "" where it does. */
  refusal(): string {
    if (this.total.sandboxes >= this.maxSandboxes)
      return `${this.total.sandboxes} of ${this.maxSandboxes} sandboxes are there`;
    if (this.total.memoryMb >= this.memoryMbCapacity) return "the memory that may be promised is used up";
    if (this.total.cpuCores >= this.cpuCoresCapacity) return "the CPU that may be promised is used up";
    const { memoryAvailableMb } = this.meter.use();
    if (memoryAvailableMb < this.memoryFloorMb) return `the node has only ${memoryAvailableMb} MiB of memory available`;
    return "";
  }

  /** Promises the requests, or throws CAPACITY_FULL, or NEVER_FITS where the empty node would be too small. */
  admit(project: string, requests: Requests): void {
    const { memoryRequestMb: memory, cpuCoresRequest: cpu } = requests;
    if (memory > this.memoryMbCapacity || cpu > this.cpuCoresCapacity) {
      throw new DsecError(
        "NEVER_FITS",
        `${memory} MiB and ${cpu} cores were requested; this node may promise ${this.memoryMbCapacity} MiB and ${this.cpuCoresCapacity} cores in all`,
      );
    }
    const reason = this.refusal();
    if (reason !== "") throw new DsecError("CAPACITY_FULL", reason, full);
    if (
      this.total.memoryMb + memory > this.memoryMbCapacity ||
      this.total.cpuCores + cpu > this.cpuCoresCapacity + 1e-9
    ) {
      throw new DsecError(
        "CAPACITY_FULL",
        `${memory} MiB and ${cpu} cores were requested; ${this.total.memoryMb} of ${this.memoryMbCapacity} MiB and ${this.total.cpuCores.toFixed(2)} of ${this.cpuCoresCapacity} cores are promised`,
        full,
      );
    }
    this.count(project, requests, 1);
  }

  /** Counts a sandbox that is there already, whatever the capacity. */
  adopt(project: string, requests: Requests): void {
    this.count(project, requests, 1);
  }

  release(project: string, requests: Requests): void {
    this.count(project, requests, -1);
  }

  private count(project: string, requests: Requests, sign: 1 | -1): void {
    const use = this.projects.get(project) ?? { sandboxes: 0, cpuCores: 0, memoryMb: 0 };
    for (const sum of [this.total, use]) {
      sum.sandboxes += sign;
      sum.memoryMb += sign * requests.memoryRequestMb;
      sum.cpuCores += sign * requests.cpuCoresRequest;
      // Sums of fractions drift; an empty node has promised exactly nothing.
      if (sum.sandboxes === 0) sum.cpuCores = 0;
    }
    if (use.sandboxes === 0) this.projects.delete(project);
    else this.projects.set(project, use);
  }
}
