import { afterEach, beforeEach, expect, test } from "vitest";
import { StartQueue } from "../src/admission/start-queue.ts";
import { systemClock } from "../src/clock.ts";
import { errorOf, reasonOf } from "./support/client.ts";
import { digest, FakeEdge } from "./support/fake-edge.ts";

let fake: FakeEdge;
beforeEach(async () => {
  fake = await FakeEdge.start({ maxSandboxes: 5, overcommitCpu: 2, overcommitMemory: 1 });
});
afterEach(() => fake.stop());

const container = (value: object) => ({ backend: { case: "container" as const, value } });

test("a burst beyond the number becomes sandboxes and typed errors, one for each", async () => {
  const results = await Promise.allSettled(Array.from({ length: 12 }, () => fake.create()));
  expect(results.filter((r) => r.status === "fulfilled").length).toBe(5);
  const failed = results.filter((r) => r.status === "rejected");
  for (const { reason } of failed) {
    const error = await errorOf(Promise.reject(reason));
    expect([error.reason, error.retryable]).toEqual(["CAPACITY_FULL", true]);
    expect(error.retryAfterMs).toBeGreaterThan(0);
  }
});

test("requests are counted, limits are not", async () => {
  const big = container({ memoryLimitMb: 20_000n, memoryRequestMb: 10_000n });
  await fake.create(big);
  await fake.create(big);
  expect(await reasonOf(fake.create(big))).toBe("CAPACITY_FULL");
  await fake.create(container({ memoryLimitMb: 20_000n }));
  expect(await reasonOf(fake.create(container({ cpuCoresRequest: 3.99 })))).toBe("CAPACITY_FULL");
  expect(await reasonOf(fake.create(container({ memoryRequestMb: 24_001n })))).toBe("NEVER_FITS");
  expect(await reasonOf(fake.create(container({ cpuCoresRequest: 4.1 })))).toBe("NEVER_FITS");
});

test("a node whose memory is used up takes no new ones", async () => {
  fake.meter.availableMb = 100;
  expect(await reasonOf(fake.create())).toBe("CAPACITY_FULL");
  expect((await fake.client.edge.snapshot({})).status?.accepting).toBe(false);
  fake.meter.availableMb = 10_000;
  await fake.create();
});

test("defaults are filled in; a limit larger than the node is cut and told", async () => {
  const plain = await fake.create();
  expect(plain).toMatchObject({
    memoryLimitMb: 2048n,
    diskLimitMb: 10_240n,
    pidsLimit: 512,
    memoryRequestMb: 32n,
    cpuCoresRequest: 0.02,
  });
  expect(plain.notices).toEqual([]);
  const cut = await fake.create(container({ memoryLimitMb: 1_000_000n, cpuCoresLimit: 64 }));
  expect(cut).toMatchObject({ memoryLimitMb: 24_000n, cpuCoresLimit: 2 });
  expect(cut.notices.map((n) => [n.reason, n.field])).toEqual([
    ["LIMIT_CUT", "container.memory_limit_mb"],
    ["LIMIT_CUT", "container.cpu_cores_limit"],
  ]);
  expect((await fake.create(container({ memoryLimitMb: 20n }))).memoryRequestMb).toBe(20n);
});

test("limits below the minimum are refused", async () => {
  for (const args of [
    { memoryLimitMb: 1n },
    { diskLimitMb: 1n },
    { pidsLimit: 1 },
    { cpuCoresLimit: 0.001 },
    { cpuCoresLimit: -1 },
    { cpuCoresLimit: Number.NaN },
  ]) {
    expect(await reasonOf(fake.create(container(args)))).toBe("INVALID_LIMIT");
  }
  expect(await reasonOf(fake.create({ ttlMs: 5n }))).toBe("INVALID_LIMIT");
  expect(await reasonOf(fake.create({ idleMs: 5n }))).toBe("INVALID_LIMIT");
});

test("strict makes a notice an error", async () => {
  const rules = { networkRules: { allow: { pypi: true, npm: false } } };
  const { notices, networkRules } = await fake.create(container(rules));
  expect(notices.map((n) => n.reason)).toEqual(["ONLY_LOOPBACK"]);
  expect(networkRules?.allow).toEqual({ pypi: true, npm: false });
  expect(await reasonOf(fake.create({ ...container(rules), strict: true }))).toBe("NOT_STRICT");
  expect(
    (await fake.create({ ...container({ networkRules: { allow: { npm: false } } }), strict: true })).notices,
  ).toEqual([]);
});

test("network rules are services or domains", async () => {
  for (const name of ["npm", "example.org", "*.example.org:443", "a-b.c1.io:65535", "xn--bcher-kva.example"]) {
    const { sandboxId } = await fake.create(container({ networkRules: { allow: { [name]: true } } }));
    await fake.client.sandboxes.stopSandbox({ sandboxId });
  }
  for (const name of [
    "",
    "node",
    "https://x.org",
    "x.org/path",
    "*.*.org",
    "10.0.0.1",
    "x.org:0",
    "x.org:65536",
    "-a.org",
    "a b.org",
    "*",
  ]) {
    expect([name, await reasonOf(fake.create(container({ networkRules: { allow: { [name]: true } } })))]).toEqual([
      name,
      "INVALID_NETWORK_RULE",
    ]);
  }
});

test("other arguments that cannot be are named", async () => {
  const cases: [object, string][] = [
    [{ hostname: "a b" }, "INVALID_ARGUMENT"],
    [{ runtime: "docker" }, "INVALID_ARGUMENT"],
    [{ env: { "A=B": "x" } }, "INVALID_ARGUMENT"],
    [{ env: { A: "x\0y" } }, "INVALID_ARGUMENT"],
    [{ workingDir: "relative" }, "INVALID_PATH"],
  ];
  for (const [args, reason] of cases) expect(await reasonOf(fake.create(container(args)))).toBe(reason);
  expect(await reasonOf(fake.create({ createKey: "short" }))).toBe("INVALID_ARGUMENT");
  expect(await reasonOf(fake.create({}, { layers: [] }))).toBe("INVALID_ARGUMENT");
  expect(await reasonOf(fake.create({}, { layers: [{ digest: "sha256:no" }] }))).toBe("INVALID_ARGUMENT");
  expect(await reasonOf(fake.create({}, { layers: [{ digest: digest.replace("ab", "cd") }] }))).toBe("LAYER_NOT_FOUND");
});

test("the queue of starts is bounded, in order, and gives up at the deadline", async () => {
  const queue = new StartQueue(1, 2, systemClock);
  const order: number[] = [];
  let go: () => void = () => {};
  const far = Date.now() + 60_000;
  const first = queue.run(far, () => new Promise<void>((resolve) => (go = resolve)));
  const late = errorOf(queue.run(Date.now() + 50, async () => order.push(2)));
  const third = queue.run(far, async () => order.push(3));
  expect(await reasonOf(queue.run(far, async () => order.push(4)))).toBe("CAPACITY_FULL");
  expect((await late).reason).toBe("DEADLINE_EXCEEDED");
  go();
  await Promise.all([first, third]);
  expect(order).toEqual([3]);
});
