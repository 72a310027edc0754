// Quotas of one apiserver: what the last snapshots of the edges say, plus what this apiserver has under way.
//
// A create reserves before anything is awaited, so 200 at once on a quota of 50 give exactly 50. Its reservation ends when
// a snapshot that was asked for after the create's answer is in: from then on the edge's own count has it. Between the two
// a snapshot may or may not show it ("open" below), so counts are kept as upper bounds that never forget one and soon
// shrink to the truth:
//   settled = min(shown, settled before + reservations that this snapshot must show), but at least shown − open
import { DsecError, type NodeStatus } from "@dsec/api";
import { isAtOrBelow } from "./paths.ts";

export interface Amounts {
  sandboxes: number;
  /** Cores requested. */
  cpuCores: number;
  /** MiB requested. */
  memoryMb: number;
}

export interface ProjectLimits {
  readonly path: string;
  readonly limits: Partial<Amounts>;
}

/** Of one create; each must end by `failed`, `created` or `unknown`. */
export interface Reservation {
  /** It goes to this edge now. */
  sentTo(edge: string): void;
  /** The edge refused it, or it was never sent: it counts no more. */
  failed(): void;
  /** The edge has it: it counts until a snapshot shows it. */
  created(): void;
  /** The answer was lost: it counts until a snapshot that is asked for `unknownMs` later. */
  unknown(): void;
}

const unknownMs = 5_000;
const dimensions = ["sandboxes", "cpuCores", "memoryMb"] as const;
const slack = 1e-9;

interface Held {
  readonly project: string;
  readonly amounts: Amounts;
  edge: string | undefined;
  /** When its answer came; Infinity while it is under way. Same clock as `askedAt` of a snapshot. */
  settledAt: number;
}

interface EdgeUse {
  status: NodeStatus;
  /** By project, itself alone: upper bound of what is there beyond what is held. */
  settled: Map<string, Amounts>;
}

export class QuotaLedger {
  readonly #edges = new Map<string, EdgeUse>();
  readonly #held = new Set<Held>();
  readonly #now: () => number;

  /** @param now a clock in milliseconds that never goes back */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /**
   * Takes the amounts of one sandbox from the project and all above it, or throws QUOTA_EXCEEDED.
   * @param chain the project first, then those above it
   */
  reserve(chain: readonly ProjectLimits[], amounts: Amounts): Reservation {
    const project = chain[0]?.path;
    if (project === undefined) throw new Error("a reservation needs a project");
    for (const { path, limits } of chain) {
      if (Object.keys(limits).length === 0) continue;
      const used = this.used(path);
      for (const d of dimensions) {
        const limit = limits[d];
        if (limit !== undefined && used[d] + amounts[d] > limit + slack)
          throw exceeded(path, d, limit, used[d], amounts[d]);
      }
    }
    const held: Held = { project, amounts, edge: undefined, settledAt: Number.POSITIVE_INFINITY };
    this.#held.add(held);
    return {
      sentTo: (edge) => {
        held.edge = edge;
      },
      failed: () => {
        this.#held.delete(held);
      },
      created: () => {
        held.settledAt = this.#now();
      },
      unknown: () => {
        held.settledAt = this.#now() + unknownMs;
      },
    };
  }

  /** Takes a snapshot in. `askedAt`: when it was asked for, of the ledger's clock. */
  take(status: NodeStatus, askedAt: number): void {
    const before = this.#edges.get(status.edge);
    const shown = new Map<string, Amounts>();
    for (const use of status.projects) {
      add(at(shown, use.project), { sandboxes: use.sandboxes, cpuCores: use.cpuCores, memoryMb: Number(use.memoryMb) });
    }
    const due = new Map<string, Amounts>();
    const open = new Map<string, Amounts>();
    for (const held of this.#held) {
      if (held.edge !== status.edge) continue;
      if (held.settledAt < askedAt) {
        this.#held.delete(held);
        add(at(due, held.project), held.amounts);
      } else add(at(open, held.project), held.amounts);
    }
    const restarted = before !== undefined && before.status.startedAtMs !== status.startedAtMs;
    const settled = new Map<string, Amounts>();
    for (const [project, now] of shown) {
      const was = before === undefined || restarted ? undefined : (before.settled.get(project) ?? none());
      const result = none();
      for (const d of dimensions) {
        const cap = was === undefined ? now[d] : was[d] + (due.get(project)?.[d] ?? 0);
        result[d] = Math.max(now[d] - (open.get(project)?.[d] ?? 0), Math.min(now[d], cap), 0);
      }
      settled.set(project, result);
    }
    this.#edges.set(status.edge, { status, settled });
  }

  /** Upper bound of what is in use at and below the project. */
  used(path: string): Amounts {
    const sum = none();
    for (const { settled } of this.#edges.values()) {
      for (const [project, amounts] of settled) if (isAtOrBelow(project, path)) add(sum, amounts);
    }
    for (const held of this.#held) if (isAtOrBelow(held.project, path)) add(sum, held.amounts);
    return sum;
  }
}

function none(): Amounts {
  return { sandboxes: 0, cpuCores: 0, memoryMb: 0 };
}

function add(sum: Amounts, more: Amounts): void {
  for (const d of dimensions) sum[d] += more[d];
}

function at(map: Map<string, Amounts>, project: string): Amounts {
  let amounts = map.get(project);
  if (amounts === undefined) {
    amounts = none();
    map.set(project, amounts);
  }
  return amounts;
}

const units: Record<keyof Amounts, string> = {
  sandboxes: "sandboxes",
  cpuCores: "CPU cores",
  memoryMb: "MiB of memory",
};

function exceeded(path: string, d: keyof Amounts, limit: number, used: number, asked: number): DsecError {
  const round = (n: number) => String(Math.round(n * 1000) / 1000);
  return new DsecError(
    "QUOTA_EXCEEDED",
    `project "${path}" may use ${round(limit)} ${units[d]}; ${round(used)} are in use and ${round(asked)} more were asked for`,
    { retryAfterMs: 1_000, metadata: { project: path, dimension: d, limit: round(limit), used: round(used) } },
  );
}
