import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import type { FakeEdge } from "./support/fake-edge.ts";
import {
  type Answer,
  importBase,
  infoOf,
  type Platform,
  reasonOf,
  rpc,
  send,
  startPlatform,
} from "./support/platform.ts";

let platform: Platform;
let edges: FakeEdge[];
beforeAll(async () => {
  platform = await startPlatform({ edges: ["ea", "eb", "ec"] });
  edges = platform.edges;
  await importBase(platform);
});
afterAll(() => platform[Symbol.asyncDispose]());
beforeEach(async () => {
  await Promise.all(edges.map((edge) => edge.reset()));
  await rpc(platform.port, platform.key, "IamService/SetQuota", { path: "main", quota: {} });
  await seen(() => true);
});

const container = { image: "debian" };
const createOne = (more: object = {}, port = platform.port): Promise<Answer> =>
  rpc(port, platform.key, "SandboxService/CreateSandbox", { container, ...more });
/** Waits until the watcher has every edge, accepting or not as they are now. */
async function seen(accepts: (edge: FakeEdge) => boolean): Promise<void> {
  for (;;) {
    const { nodes } = (await rpc(platform.port, platform.key, "NodeService/ListNodes")).json;
    const right = edges.every((edge) => {
      const node = nodes.find((n: { edge: string }) => n.edge === edge.edge);
      return node.healthy && (node.accepting ?? false) === accepts(edge) && (node.sandboxes ?? 0) === edge.made.size;
    });
    if (right) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
const made = () => edges.reduce((sum, edge) => sum + edge.made.size, 0);

test("200 creates at once on a quota of 50 give exactly 50, and stops make room again", async () => {
  await rpc(platform.port, platform.key, "IamService/CreateProject", { path: "main/a" });
  await rpc(platform.port, platform.key, "IamService/SetQuota", { path: "main/a", quota: { sandboxes: 50 } });
  for (const edge of edges) edge.createMs = 120;
  const started: Promise<Answer>[] = [];
  // Over several polls, so that snapshots show some of what is under way.
  for (let i = 0; i < 200; i++) {
    started.push(createOne({ project: "main/a" }));
    if (i % 20 === 19) await new Promise((resolve) => setTimeout(resolve, 20));
  }
  const answers = await Promise.all(started);
  const good = answers.filter((a) => a.status === 200);
  expect(good).toHaveLength(50);
  expect(answers.filter((a) => reasonOf(a) === "QUOTA_EXCEEDED")).toHaveLength(150);
  expect(made()).toBe(50);
  for (const edge of edges) edge.createMs = 0;
  for (let round = 0; round < 5; round++) {
    const id = good[round]?.json.sandbox.sandboxId;
    expect((await rpc(platform.port, platform.key, "SandboxService/StopSandbox", { sandboxId: id })).status).toBe(200);
    expect((await createOne({ project: "main/a" })).status).toBe(200);
    expect(reasonOf(await createOne({ project: "main/a" }))).toBe("QUOTA_EXCEEDED");
  }
});

test("quotas look at requests, not at limits", async () => {
  await rpc(platform.port, platform.key, "IamService/SetQuota", { path: "main", quota: { memoryMb: "100" } });
  expect((await createOne({ container: { ...container, memoryLimitMb: "100000" } })).status).toBe(200);
  const refused = await createOne({ container: { ...container, memoryRequestMb: "69" } });
  expect(infoOf(refused)).toMatchObject({
    reason: "QUOTA_EXCEEDED",
    retryable: true,
    metadata: { used: "32", limit: "100" },
  });
  expect((await createOne({ container: { ...container, memoryRequestMb: "68" } })).status).toBe(200);
});

test("an edge that refuses or is away sends the create to another, and all are named when none takes it", async () => {
  edges[0]!.refuse = "CAPACITY_FULL";
  await edges[1]!.stop();
  for (let i = 0; i < 6; i++) expect((await createOne()).json.sandbox.edge).toBe("ec");
  edges[2]!.refuse = "CAPACITY_FULL";
  const full = await createOne();
  expect(full.status).toBe(429);
  expect(full.headers["retry-after"]).toBe("1");
  expect(infoOf(full)).toMatchObject({ reason: "CAPACITY_FULL", retryable: true, retryAfterMs: "250" });
  expect(infoOf(full).metadata.attempts).toContain("ec:CAPACITY_FULL");
  edges[0]!.refuse = "LAYER_NOT_FOUND";
  edges[2]!.refuse = "LAYER_NOT_FOUND";
  expect(reasonOf(await createOne())).toBe("LAYER_NOT_FOUND");
});

test("what no node is large enough for is NEVER_FITS, and what fails on a node is not tried on another", async () => {
  expect(infoOf(await createOne({ container: { ...container, memoryRequestMb: "1000001" } }))).toMatchObject({
    reason: "NEVER_FITS",
  });
  for (const edge of edges) edge.refuse = "LAUNCH_FAILED";
  expect(reasonOf(await createOne())).toBe("LAUNCH_FAILED");
  expect(edges.reduce((sum, edge) => sum + edge.creates.length, 0)).toBe(1);
});

test("a create that breaks after it was sent is not tried elsewhere; the retry finds what it made", async () => {
  for (const cut of ["before", "after"] as const) {
    const createKey = `key-cut-${cut}`;
    for (const edge of edges) edge.cutCreate = cut;
    const before = made();
    const broken = await createOne({ createKey });
    expect(infoOf(broken)).toMatchObject({ reason: "EDGE_UNREACHABLE", outcome: "unknown", retryable: true });
    for (const edge of edges) edge.cutCreate = undefined;
    const retried = await createOne({ createKey, retry: true });
    expect(retried.status, retried.body.toString()).toBe(200);
    expect(made()).toBe(before + 1);
    const again = await createOne({ createKey, retry: true });
    expect(again.json.sandbox.sandboxId).toBe(retried.json.sandbox.sandboxId);
    expect(reasonOf(await createOne({ createKey, retry: true, job: "another" }))).toBe("IDEMPOTENCY_MISMATCH");
  }
});

test("a first attempt that arrives after its retry asked is refused", async () => {
  const createKey = "late-first-attempt";
  expect((await createOne({ createKey, retry: true })).status).toBe(200);
  // The edges that were asked and made nothing have the mark.
  const holder = edges.find((edge) => [...edge.keys.values()].some((key) => key.id !== ""))!;
  for (const edge of edges) if (edge === holder) edge.accepting = false;
  await seen((edge) => edge !== holder);
  expect(reasonOf(await createOne({ createKey }))).toBe("CREATE_SUPERSEDED");
  expect(made()).toBe(1);
});

test("a retry while an edge cannot be asked is unavailable, with the outcome unknown", async () => {
  await edges[0]!.stop();
  const answer = await createOne({ createKey: "unaskable-1", retry: true });
  expect(infoOf(answer)).toMatchObject({
    reason: "UNAVAILABLE",
    outcome: "unknown",
    retryable: true,
    metadata: { edge: "ea" },
  });
  expect(made()).toBe(0);
});

test("many retries of one create at once make one sandbox", async () => {
  const createKey = "many-retries";
  for (const edge of edges) edge.createMs = 20;
  const answers = await Promise.all(Array.from({ length: 12 }, () => createOne({ createKey, retry: true })));
  const ids = new Set(answers.filter((a) => a.status === 200).map((a) => a.json.sandbox.sandboxId));
  expect(ids.size).toBeLessThanOrEqual(1);
  expect(made()).toBeLessThanOrEqual(1);
  const last = await createOne({ createKey, retry: true });
  expect(last.status, last.body.toString()).toBe(200);
  expect(made()).toBe(1);
});

test("a deadline is kept: the client's own, and the call's", async () => {
  expect(reasonOf(await createOne({ deadlineUnixMs: "1" }))).toBe("DEADLINE_EXCEEDED");
  for (const edge of edges) edge.createMs = 5_000;
  const late = await createOne({ createKey: "too-late-1", deadlineUnixMs: String(Date.now() + 200) });
  expect(infoOf(late)).toMatchObject({ reason: "DEADLINE_EXCEEDED", outcome: "unknown" });
  const slow = await send(platform.port, "/dsec.v1.SandboxService/CreateSandbox", {
    key: platform.key,
    headers: { "content-type": "application/json", "connect-timeout-ms": "150" },
    body: JSON.stringify({ container }),
  });
  expect(infoOf(slow)).toMatchObject({ reason: "DEADLINE_EXCEEDED", outcome: "unknown" });
});

test("the edge gets whole layers, the image's config, and a digest that does not see key, deadline and retry", async () => {
  await createOne({
    createKey: "digest-1",
    labels: { b: "2", a: "1" },
    container: { ...container, env: { z: "1", a: "2" } },
  });
  await createOne({
    createKey: "digest-2",
    labels: { a: "1", b: "2" },
    deadlineUnixMs: String(Date.now() + 60_000),
    container: { ...container, env: { a: "2", z: "1" } },
  });
  await createOne({ createKey: "digest-3", labels: { a: "1" } });
  const creates = edges
    .flatMap((edge) => edge.creates)
    .sort((a, b) => (a.request!.createKey < b.request!.createKey ? -1 : 1));
  expect(creates[0]?.config?.env).toEqual(["A=b"]);
  expect(creates[0]?.request?.project).toBe("main");
  expect(creates[0]?.argumentsDigest).toMatch(/^[0-9a-f]{64}$/);
  expect(creates[1]?.argumentsDigest).toBe(creates[0]?.argumentsDigest);
  expect(creates[2]?.argumentsDigest).not.toBe(creates[0]?.argumentsDigest);
});

test("wrong creates are told what is wrong", async () => {
  await send(platform.port, "/v1/layers?kind=workspace&name=repo&format=tar", { key: platform.key, body: "tar" });
  const cases: [object, string][] = [
    [{ container: { image: "nope" } }, "LAYER_NOT_FOUND"],
    [{ container: { image: "debain" } }, "LAYER_NOT_FOUND"],
    [{ container: { image: "repo" } }, "LAYER_KIND_MISMATCH"],
    [{ container: { image: "debian", workspace: "debian" } }, "LAYER_KIND_MISMATCH"],
    [{ container: { image: "debian", toolkits: ["repo"] } }, "LAYER_KIND_MISMATCH"],
    [{ container: { image: "" } }, "INVALID_ARGUMENT"],
    [{ container: { image: "a\u0000b" } }, "INVALID_ARGUMENT"],
    [{ container: undefined }, "INVALID_ARGUMENT"],
    [{ createKey: "short" }, "INVALID_ARGUMENT"],
    [{ createKey: "has space in it" }, "INVALID_ARGUMENT"],
    [{ retry: true }, "INVALID_ARGUMENT"],
    [{ project: "main/none" }, "PROJECT_NOT_FOUND"],
    [{ project: "public" }, "INVALID_ARGUMENT"],
    [{ project: "../main" }, "INVALID_ARGUMENT"],
    [{ container: { ...container, cpuCoresRequest: -1 } }, "INVALID_LIMIT"],
    [{ container: { ...container, cpuCoresRequest: "NaN" } }, "INVALID_LIMIT"],
  ];
  for (const [more, reason] of cases) expect(reasonOf(await createOne(more)), JSON.stringify(more)).toBe(reason);
  expect((await createOne({ container: { image: "debain" } })).json.message).toContain("main/debian");
  expect(made()).toBe(0);
});
