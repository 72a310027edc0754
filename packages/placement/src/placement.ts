// Which node a sandbox goes to: filter, sample k at random, take the least loaded. Pure functions; the edge has the final
// say, and a refusal comes back here as one more node that was tried.
import { DsecError, type NodeStatus } from "@dsec/api";

/** What one sandbox asks for, as placement counts it. */
export interface Demand {
  readonly backend: string;
  /** Cores. */
  readonly cpuCores: number;
  /** MiB. */
  readonly memoryMb: number;
}

/** Placements of our own that the node's snapshot does not show yet. */
export interface Overlay {
  readonly sandboxes: number;
  readonly cpuCores: number;
  readonly memoryMb: number;
}

export interface Node {
  readonly edge: string;
  /** Undefined: it never answered. */
  readonly status: NodeStatus | undefined;
  readonly reachable: boolean;
}

/** A node that was asked and refused. */
export interface Attempt {
  readonly edge: string;
  readonly reason: string;
  readonly retryAfterMs: number;
}

export interface Choice {
  /** How many nodes are looked at, drawn at random. */
  readonly k: number;
  /** Uniform in [0, 1). */
  readonly random: () => number;
}

const nothing: Overlay = { sandboxes: 0, cpuCores: 0, memoryMb: 0 };

/** Healthy, accepting, with the backend, and large enough for the demand were it empty. */
export function isCandidate(node: Node, demand: Demand): node is Node & { status: NodeStatus } {
  const { status } = node;
  if (status === undefined || !node.reachable || !status.healthy || !status.accepting) return false;
  return status.backends.includes(demand.backend) && isLargeEnough(status, demand);
}

function isLargeEnough(status: NodeStatus, demand: Demand): boolean {
  return demand.cpuCores <= status.cpuCoresCapacity && demand.memoryMb <= Number(status.memoryMbCapacity);
}

/** The larger of the shares of CPU and memory that would be promised with the demand on it; above 1: it does not fit now. */
export function loadWith(status: NodeStatus, overlay: Overlay, demand: Demand): number {
  const cpu = share(status.cpuCoresRequested + overlay.cpuCores + demand.cpuCores, status.cpuCoresCapacity);
  const memory = share(
    Number(status.memoryMbRequested) + overlay.memoryMb + demand.memoryMb,
    Number(status.memoryMbCapacity),
  );
  return Math.max(cpu, memory);
}

function share(part: number, whole: number): number {
  return whole > 0 ? part / whole : part > 0 ? Number.POSITIVE_INFINITY : 0;
}

function seemsFull(status: NodeStatus, overlay: Overlay, demand: Demand): boolean {
  return status.sandboxes + overlay.sandboxes >= status.maxSandboxes || loadWith(status, overlay, demand) > 1;
}

/**
 * The node to ask next, or undefined when none is left. Nodes that look full come last: their snapshot may be old.
 * @param tried edges that refused already
 */
export function chooseNode(
  nodes: readonly Node[],
  demand: Demand,
  tried: ReadonlySet<string>,
  overlays: ReadonlyMap<string, Overlay>,
  choice: Choice,
): string | undefined {
  const left = nodes.filter((node) => !tried.has(node.edge)).filter((node) => isCandidate(node, demand));
  const overlayOf = (node: Node) => overlays.get(node.edge) ?? nothing;
  const open = left.filter((node) => !seemsFull(node.status, overlayOf(node), demand));
  const drawn = sample(open.length > 0 ? open : left, Math.max(1, choice.k), choice.random);
  let best: string | undefined;
  let bestLoad = Number.POSITIVE_INFINITY;
  for (const node of drawn) {
    const load = loadWith(node.status, overlayOf(node), demand);
    if (best !== undefined && load >= bestLoad) continue;
    best = node.edge;
    bestLoad = load;
  }
  return best;
}

/** k different items, each set of k as likely as any other; in random order. */
export function sample<T>(items: readonly T[], k: number, random: () => number): T[] {
  const pool = [...items];
  const count = Math.min(k, pool.length);
  for (let i = 0; i < count; i++) {
    const j = i + Math.floor(random() * (pool.length - i));
    [pool[i], pool[j]] = [pool[j] as T, pool[i] as T];
  }
  return pool.slice(0, count);
}

/** Why no node took it: NEVER_FITS, CAPACITY_FULL or UNAVAILABLE, with what each node said. */
export function placementFailure(nodes: readonly Node[], demand: Demand, attempts: readonly Attempt[]): DsecError {
  const asked = `${demand.backend} with requests of ${demand.memoryMb} MiB and ${demand.cpuCores} cores`;
  const known = nodes.flatMap((node) => (node.status === undefined ? [] : [node.status]));
  const metadata: Record<string, string> = {};
  if (attempts.length > 0) metadata.attempts = attempts.map((a) => `${a.edge}:${a.reason}`).join(",");
  const able = known.filter((status) => status.backends.includes(demand.backend));
  if (known.length > 0 && known.length === nodes.length && !able.some((status) => isLargeEnough(status, demand))) {
    const largest = Math.max(0, ...able.map((status) => Number(status.memoryMbCapacity)));
    const cores = Math.max(0, ...able.map((status) => status.cpuCoresCapacity));
    return new DsecError(
      "NEVER_FITS",
      `no node takes a ${asked}; the largest promises ${largest} MiB and ${cores} cores`,
      {
        metadata,
      },
    );
  }
  const healthy = nodes.filter((node) => node.reachable && node.status?.healthy);
  if (attempts.length === 0 && healthy.length === 0) {
    return new DsecError("UNAVAILABLE", `no node answers that could take a ${asked}`, {
      metadata,
      retryAfterMs: 1_000,
    });
  }
  const waits = attempts.map((attempt) => attempt.retryAfterMs).filter((ms) => ms > 0);
  const retryAfterMs = waits.length > 0 ? Math.min(...waits) : 1_000;
  const closed = healthy.filter((node) => !node.status?.accepting);
  for (const node of closed) metadata[`not_accepting.${node.edge}`] = node.status?.notAcceptingReason ?? "";
  return new DsecError("CAPACITY_FULL", `no node has room now for a ${asked}`, { metadata, retryAfterMs });
}
