import { create } from "@bufbuild/protobuf";
import { type NodeStatus, NodeStatusSchema } from "@dsec/api";
import fc from "fast-check";
import { expect, test } from "vitest";
import { type Amounts, QuotaLedger, type Reservation } from "../src/quota-ledger.ts";

const one: Amounts = { sandboxes: 1, cpuCores: 0.02, memoryMb: 32 };

function status(edge: string, projects: Record<string, number>, startedAtMs = 1n): NodeStatus {
  return create(NodeStatusSchema, {
    edge,
    startedAtMs,
    projects: Object.entries(projects).map(([project, n]) => ({
      project,
      sandboxes: n,
      cpuCores: n * 0.02,
      memoryMb: BigInt(n * 32),
    })),
  });
}

function chain(path: string, limits: Record<string, Partial<Amounts>>) {
  const parts = path.split("/");
  return parts
    .map((_, i) => parts.slice(0, parts.length - i).join("/"))
    .map((p) => ({ path: p, limits: limits[p] ?? {} }));
}

test("200 at once on a quota of 50 are 50 and 150", () => {
  const ledger = new QuotaLedger();
  let refused = 0;
  for (let i = 0; i < 200; i++) {
    try {
      ledger.reserve(chain("main", { main: { sandboxes: 50 } }), one);
    } catch (error) {
      expect(error).toMatchObject({ reason: "QUOTA_EXCEEDED", metadata: { project: "main", dimension: "sandboxes" } });
      refused++;
    }
  }
  expect(refused).toBe(150);
});

test("a child's use counts for its parents, and each kind of amount is a limit", () => {
  const ledger = new QuotaLedger();
  const limits = { main: { memoryMb: 64 }, "main/a": { cpuCores: 1 } };
  ledger.take(status("ea", { "main/a/x": 1, "main-other": 50 }), 0);
  ledger.reserve(chain("main/a", limits), one);
  expect(() => ledger.reserve(chain("main/a", limits), one)).toThrow("MiB of memory");
  expect(() => ledger.reserve(chain("main/a", { "main/a": { cpuCores: 0.05 } }), one)).toThrow("CPU cores");
  expect(ledger.used("main/a")).toEqual({ sandboxes: 2, cpuCores: 0.04, memoryMb: 64 });
});

test("a sandbox that a snapshot shows while its create is under way is counted once", () => {
  let now = 0;
  const ledger = new QuotaLedger(() => now);
  ledger.take(status("ea", {}), now);
  const reservations = Array.from({ length: 30 }, () => ledger.reserve(chain("main", {}), one));
  for (const r of reservations) r.sentTo("ea");
  now = 10;
  ledger.take(status("ea", { main: 20 }), 9);
  expect(ledger.used("main").sandboxes).toBe(30);
  now = 20;
  for (const r of reservations) r.created();
  ledger.take(status("ea", { main: 30 }), 15);
  expect(ledger.used("main").sandboxes).toBe(30);
  ledger.take(status("ea", { main: 30 }), 25);
  expect(ledger.used("main").sandboxes).toBe(30);
  ledger.take(status("ea", { main: 4 }), 30);
  expect(ledger.used("main").sandboxes).toBe(4);
});

test("what others made on the edge is seen, and a restarted edge is believed", () => {
  let now = 0;
  const ledger = new QuotaLedger(() => now);
  ledger.take(status("ea", { main: 3 }), now);
  now = 10;
  ledger.take(status("ea", { main: 9 }), now);
  // Nothing of ours is under way: nine are there.
  expect(ledger.used("main").sandboxes).toBe(9);
  ledger.take(status("ea", { main: 2 }, 2n), 20);
  expect(ledger.used("main").sandboxes).toBe(2);
});

test("a create with an unknown end counts on until a snapshot well after it", () => {
  let now = 0;
  const ledger = new QuotaLedger(() => now);
  const lost = ledger.reserve(chain("main", {}), one);
  lost.sentTo("ea");
  lost.unknown();
  now = 4_000;
  ledger.take(status("ea", {}), now);
  expect(ledger.used("main").sandboxes).toBe(1);
  now = 6_000;
  ledger.take(status("ea", {}), now);
  expect(ledger.used("main").sandboxes).toBe(0);
});

/** One step of a random history of creates, ends and snapshots. */
type Step = { do: "create" | "arrive" | "answer" | "refuse" | "end" | "snapshot-ask" | "snapshot-take"; pick: number };

test("of one apiserver: never below the truth, never more than the quota, and exact once all is quiet", () => {
  const kinds = ["create", "arrive", "answer", "refuse", "end", "snapshot-ask", "snapshot-take"] as const;
  const step = fc.record({ do: fc.constantFrom(...kinds), pick: fc.nat(1_000) });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 120 }), fc.integer({ min: 1, max: 8 }), (steps: Step[], quota) => {
      let now = 0;
      const ledger = new QuotaLedger(() => now);
      ledger.take(status("ea", {}), now);
      const sent: Reservation[] = [];
      const arrived: Reservation[] = [];
      let alive = 0;
      let shown: { count: number; askedAt: number } | undefined;
      const pick = <T>(from: T[], n: number): T | undefined => from.splice(n % Math.max(1, from.length), 1)[0];
      for (const { do: what, pick: n } of steps) {
        now += 1;
        if (what === "create") {
          try {
            const reservation = ledger.reserve(chain("main", { main: { sandboxes: quota } }), one);
            reservation.sentTo("ea");
            sent.push(reservation);
          } catch {}
        } else if (what === "arrive") {
          const reservation = pick(sent, n);
          if (reservation) {
            arrived.push(reservation);
            alive++;
          }
        } else if (what === "answer") pick(arrived, n)?.created();
        else if (what === "refuse") pick(sent, n)?.failed();
        else if (what === "end" && alive > arrived.length) alive--;
        else if (what === "snapshot-ask") shown ??= { count: alive, askedAt: now };
        else if (what === "snapshot-take" && shown) {
          ledger.take(status("ea", { main: shown.count }), shown.askedAt);
          shown = undefined;
        }
        expect(alive + sent.length).toBeLessThanOrEqual(quota);
        expect(ledger.used("main").sandboxes).toBeGreaterThanOrEqual(alive + sent.length);
      }
      for (const reservation of arrived) reservation.created();
      for (const reservation of sent) reservation.failed();
      now += 1;
      ledger.take(status("ea", { main: alive }), now);
      now += 1;
      ledger.take(status("ea", { main: alive }), now);
      expect(ledger.used("main").sandboxes).toBe(alive);
    }),
    { numRuns: 2_000 },
  );
});
