import { create } from "@bufbuild/protobuf";
import { NodeStatusSchema } from "@dsec/api";
import fc from "fast-check";
import { expect, test } from "vitest";
import {
  chooseNode,
  type Demand,
  isCandidate,
  loadWith,
  type Node,
  type Overlay,
  placementFailure,
  sample,
} from "../src/placement.ts";
import { RecentPlacements } from "../src/recent-placements.ts";

const demand: Demand = { backend: "container", cpuCores: 1, memoryMb: 100 };
const noOverlay = new Map<string, Overlay>();

interface Facts {
  healthy?: boolean;
  accepting?: boolean;
  reachable?: boolean;
  cpu?: number;
  memory?: number;
  cpuUsed?: number;
  memoryUsed?: number;
  max?: number;
  sandboxes?: number;
  backends?: string[];
}

function node(edge: string, facts: Facts = {}): Node {
  const status = create(NodeStatusSchema, {
    edge,
    healthy: facts.healthy ?? true,
    accepting: facts.accepting ?? true,
    cpuCoresCapacity: facts.cpu ?? 100,
    memoryMbCapacity: BigInt(facts.memory ?? 10_000),
    cpuCoresRequested: facts.cpuUsed ?? 0,
    memoryMbRequested: BigInt(facts.memoryUsed ?? 0),
    maxSandboxes: facts.max ?? 3_200,
    sandboxes: facts.sandboxes ?? 0,
    backends: facts.backends ?? ["container"],
  });
  return { edge, status, reachable: facts.reachable ?? true };
}

/** Rarely false, so that most fleets have several nodes to choose from. */
const mostly = fc.integer({ min: 0, max: 9 }).map((n) => n > 0);
const facts: fc.Arbitrary<Facts> = fc.record({
  healthy: mostly,
  accepting: mostly,
  reachable: mostly,
  cpu: fc.integer({ min: 0, max: 8 }),
  memory: fc.integer({ min: 50, max: 800 }),
  cpuUsed: fc.integer({ min: 0, max: 4 }),
  memoryUsed: fc.integer({ min: 0, max: 400 }),
  max: fc.integer({ min: 0, max: 3 }),
  sandboxes: fc.integer({ min: 0, max: 3 }),
  backends: mostly.map((right) => [right ? "container" : "microvm"]),
});
const fleet = fc.array(facts, { maxLength: 12 }).map((all) => all.map((f, i) => node(`e${i}`, f)));

/** Numbers in [0, 1) from a seed. */
function randomFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

test("asking until none is left meets every candidate once and nothing else, those with room first", () => {
  fc.assert(
    fc.property(fleet, fc.integer(), fc.integer({ min: 1, max: 20 }), (nodes, seed, k) => {
      const tried = new Set<string>();
      const order: string[] = [];
      const choice = { k, random: randomFrom(seed) };
      for (let edge = chooseNode(nodes, demand, tried, noOverlay, choice); edge !== undefined; ) {
        expect(tried.has(edge)).toBe(false);
        tried.add(edge);
        order.push(edge);
        edge = chooseNode(nodes, demand, tried, noOverlay, choice);
      }
      const candidates = nodes.filter((n) => isCandidate(n, demand));
      expect([...tried].sort()).toEqual(candidates.map((n) => n.edge).sort());
      const hasRoom = (edge: string) => {
        const status = nodes.find((n) => n.edge === edge)!.status!;
        return (
          status.sandboxes < status.maxSandboxes &&
          loadWith(status, { sandboxes: 0, cpuCores: 0, memoryMb: 0 }, demand) <= 1
        );
      };
      const rooms = order.map(hasRoom);
      expect(rooms.indexOf(false) < 0 || !rooms.slice(rooms.indexOf(false)).includes(true)).toBe(true);
    }),
  );
});

test("with k as large as the fleet the least loaded node is taken", () => {
  fc.assert(
    fc.property(fleet, fc.integer(), (nodes, seed) => {
      const picked = chooseNode(nodes, demand, new Set(), noOverlay, { k: 100, random: randomFrom(seed) });
      const none: Overlay = { sandboxes: 0, cpuCores: 0, memoryMb: 0 };
      const able = nodes.filter((n) => isCandidate(n, demand));
      const open = able.filter(
        (n) => n.status!.sandboxes < n.status!.maxSandboxes && loadWith(n.status!, none, demand) <= 1,
      );
      const loads = (open.length > 0 ? open : able).map((n) => loadWith(n.status!, none, demand));
      if (picked === undefined) expect(loads).toEqual([]);
      else expect(loadWith(nodes.find((n) => n.edge === picked)!.status!, none, demand)).toBe(Math.min(...loads));
    }),
  );
});

test("a sample has k different items, and every item comes up", () => {
  fc.assert(
    fc.property(
      fc.uniqueArray(fc.integer(), { maxLength: 20 }),
      fc.integer({ min: 0, max: 25 }),
      fc.integer(),
      (items, k, seed) => {
        const drawn = sample(items, k, randomFrom(seed));
        expect(new Set(drawn).size).toBe(Math.min(k, items.length));
        for (const item of drawn) expect(items).toContain(item);
      },
    ),
  );
  const random = randomFrom(7);
  const seen = new Set(Array.from({ length: 500 }, () => sample([1, 2, 3, 4, 5], 1, random)[0]));
  expect(seen.size).toBe(5);
});

test("load is the larger share of CPU and memory, with our own recent placements", () => {
  const { status } = node("a", { cpu: 10, cpuUsed: 4, memory: 1_000, memoryUsed: 100 });
  expect(loadWith(status!, { sandboxes: 0, cpuCores: 0, memoryMb: 0 }, demand)).toBeCloseTo(0.5);
  expect(loadWith(status!, { sandboxes: 3, cpuCores: 1, memoryMb: 600 }, demand)).toBeCloseTo(0.8);
});

test("a burst on equal nodes is spread evenly, though the snapshot shows none of it", () => {
  const nodes = ["a", "b", "c"].map((edge) => node(edge));
  const recent = new RecentPlacements();
  const random = randomFrom(1);
  const count = new Map<string, number>();
  for (let i = 0; i < 90; i++) {
    const edge = chooseNode(nodes, demand, new Set(), recent.overlays, { k: 3, random })!;
    recent.place(edge, demand);
    count.set(edge, (count.get(edge) ?? 0) + 1);
  }
  expect([...count.values()]).toEqual([30, 30, 30]);
});

test("a recent placement counts until a snapshot that was asked for after its answer, a refused one not at all", () => {
  let now = 0;
  const recent = new RecentPlacements(() => now);
  const placed = recent.place("a", demand);
  recent.place("a", demand).refused();
  expect(recent.overlays.get("a")).toEqual({ sandboxes: 1, cpuCores: 1, memoryMb: 100 });
  recent.take(node("a").status!, 5);
  expect(recent.overlays.get("a")?.sandboxes).toBe(1);
  now = 10;
  placed.answered();
  recent.take(node("a").status!, 10);
  expect(recent.overlays.get("a")?.sandboxes).toBe(1);
  recent.take(node("a").status!, 11);
  expect(recent.overlays.get("a")).toEqual({ sandboxes: 0, cpuCores: 0, memoryMb: 0 });
  placed.refused();
  expect(recent.overlays.get("a")?.sandboxes).toBe(0);
});

test("why nobody took it", () => {
  const small = node("a", { memory: 50 });
  expect(placementFailure([small], demand, [])).toMatchObject({ reason: "NEVER_FITS", retryable: false });
  expect(placementFailure([node("a", { backends: [] })], demand, [])).toMatchObject({ reason: "NEVER_FITS" });
  const away = node("b", { reachable: false });
  expect(placementFailure([away], demand, [])).toMatchObject({ reason: "UNAVAILABLE" });
  // A node that never answered may be large enough.
  expect(placementFailure([small, { edge: "c", status: undefined, reachable: false }], demand, [])).toMatchObject({
    reason: "CAPACITY_FULL",
  });
  const attempts = [
    { edge: "a", reason: "CAPACITY_FULL", retryAfterMs: 700 },
    { edge: "b", reason: "EDGE_UNREACHABLE", retryAfterMs: 300 },
  ];
  expect(placementFailure([node("a"), away], demand, attempts)).toMatchObject({
    reason: "CAPACITY_FULL",
    retryAfterMs: 300,
    metadata: { attempts: "a:CAPACITY_FULL,b:EDGE_UNREACHABLE" },
  });
});
