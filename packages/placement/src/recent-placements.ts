import type { NodeStatus } from "@dsec/api";
import type { Demand, Overlay } from "./placement.ts";

interface Placed {
  readonly edge: string;
  readonly demand: Demand;
  /** When the edge answered; Infinity before. */
  answeredAt: number;
}

/** What this apiserver sent to each edge and the edge's last snapshot may not show yet. */
export class RecentPlacements {
  readonly #placed = new Map<string, Set<Placed>>();
  readonly #sums = new Map<string, { sandboxes: number; cpuCores: number; memoryMb: number }>();
  readonly #now: () => number;

  /** @param now the clock of `askedAt` in `take` */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  get overlays(): ReadonlyMap<string, Overlay> {
    return this.#sums;
  }

  /** Counts a demand on an edge, from just before it is sent. `refused` takes it back; `answered` leaves it to a snapshot. */
  place(edge: string, demand: Demand): { refused(): void; answered(): void } {
    const placed: Placed = { edge, demand, answeredAt: Number.POSITIVE_INFINITY };
    const set = this.#placed.get(edge) ?? new Set();
    this.#placed.set(edge, set.add(placed));
    this.#add(edge, demand, 1);
    return {
      refused: () => this.#remove(placed),
      answered: () => {
        placed.answeredAt = this.#now();
      },
    };
  }

  /** A snapshot asked for at `askedAt` shows what was answered before that. */
  take(status: NodeStatus, askedAt: number): void {
    for (const placed of this.#placed.get(status.edge) ?? []) if (placed.answeredAt < askedAt) this.#remove(placed);
  }

  #remove(placed: Placed): void {
    if (this.#placed.get(placed.edge)?.delete(placed)) this.#add(placed.edge, placed.demand, -1);
  }

  #add(edge: string, demand: Demand, sign: 1 | -1): void {
    const left = this.#placed.get(edge)?.size ?? 0;
    const sum = this.#sums.get(edge) ?? { sandboxes: 0, cpuCores: 0, memoryMb: 0 };
    this.#sums.set(edge, {
      sandboxes: sum.sandboxes + sign,
      // Exactly nothing once all are gone: sums of fractions drift.
      cpuCores: left === 0 ? 0 : sum.cpuCores + sign * demand.cpuCores,
      memoryMb: left === 0 ? 0 : sum.memoryMb + sign * demand.memoryMb,
    });
  }
}
