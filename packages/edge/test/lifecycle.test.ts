import { EndReason, SandboxState } from "@dsec/api";
import { afterEach, beforeEach, expect, test } from "vitest";
import { errorOf, reasonOf } from "./support/client.ts";
import { createRequest, FakeEdge, until } from "./support/fake-edge.ts";

let fake: FakeEdge;
beforeEach(async () => {
  fake = await FakeEdge.start();
});
afterEach(() => fake.stop());

test("a sandbox is made, runs a command and is stopped", async () => {
  const sandbox = await fake.create({ labels: { a: "b" } });
  expect(sandbox.sandboxId).toMatch(/^e1[a-z2-7]{20}$/);
  expect(sandbox.state).toBe(SandboxState.RUNNING);
  const { sandboxId } = sandbox;
  const { result } = await fake.client.commands.exec({ sandboxId, spec: { what: { case: "shell", value: "x" } } });
  expect(Buffer.from(result?.stdout?.data ?? []).toString()).toBe("hello\n");
  const stopped = await fake.client.sandboxes.stopSandbox({ sandboxId });
  expect(stopped.sandbox?.endReason).toBe(EndReason.STOPPED);
  expect(fake.node.aethers.size).toBe(0);
  const again = await fake.client.sandboxes.stopSandbox({ sandboxId });
  expect(again.sandbox?.endReason).toBe(EndReason.STOPPED);
  await fake.client.sandboxes.deleteSandbox({ sandboxId });
  const error = await errorOf(fake.client.sandboxes.getSandbox({ sandboxId }));
  expect([error.reason, error.metadata.end_reason]).toEqual(["SANDBOX_ENDED", "STOPPED"]);
});

test("secrets reach aether and no file", async () => {
  const args = { env: { PLAIN: "1" }, secretEnv: { TOKEN: "s3cr3t-value" } };
  const { sandboxId, envNames } = await fake.create({ backend: { case: "container", value: args } });
  expect(envNames).toEqual(["PLAIN", "TOKEN"]);
  const configured = fake.node.aethers.get(sandboxId)?.requests.find((r) => r.call.case === "configure");
  expect(configured?.call.value).toMatchObject({ secretEnv: { TOKEN: "s3cr3t-value" }, user: "root" });
  const { readFileSync, readdirSync } = await import("node:fs");
  const dir = `${fake.dir}/edges/e1`;
  const text =
    readdirSync(`${dir}/sandboxes`)
      .map((name) => readFileSync(`${dir}/sandboxes/${name}`, "utf8"))
      .join("") + readFileSync(`${dir}/journal`, "utf8");
  expect(text).toContain(sandboxId);
  expect(text).not.toContain("s3cr3t");
});

test("a key makes one sandbox, whatever arrives twice", async () => {
  let go: () => void = () => {};
  fake.node.beforeStart = () => new Promise((resolve) => (go = resolve));
  const first = fake.create({ createKey: "key-000001" });
  const second = fake.create({ createKey: "key-000001" });
  await until(() => fake.node.calls.includes("start"), "the start");
  const asked = await fake.client.edge.askCreateKey({
    project: "root",
    createKey: "key-000001",
    argumentsDigest: "d1",
    attempt: 1n,
  });
  go();
  expect((await first).sandboxId).toBe((await second).sandboxId);
  expect(asked.sandboxId).toBe((await first).sandboxId);
  expect(fake.node.aethers.size).toBe(1);
  expect(await reasonOf(fake.create({ createKey: "key-000001" }, { argumentsDigest: "d2" }))).toBe(
    "IDEMPOTENCY_MISMATCH",
  );
  await fake.client.sandboxes.stopSandbox({ sandboxId: (await first).sandboxId });
  expect(await reasonOf(fake.create({ createKey: "key-000001" }))).toBe("SANDBOX_ENDED");
});

test("a first attempt that comes after the retry asked is refused, also after a restart", async () => {
  const ask = (attempt: bigint) =>
    fake.client.edge.askCreateKey({ project: "root", createKey: "late-00001", argumentsDigest: "d1", attempt });
  expect((await ask(5n)).sandboxId).toBe("");
  expect((await ask(3n)).supersededBy).toBe(5n);
  expect(await reasonOf(fake.create({ createKey: "late-00001" }))).toBe("CREATE_SUPERSEDED");
  await fake.restart();
  expect(await reasonOf(fake.create({ createKey: "late-00001" }))).toBe("CREATE_SUPERSEDED");
  expect(await reasonOf(fake.create({ createKey: "late-00001", retry: true }, { attempt: 4n }))).toBe(
    "CREATE_SUPERSEDED",
  );
  expect((await fake.create({ createKey: "late-00001", retry: true }, { attempt: 5n })).state).toBe(
    SandboxState.RUNNING,
  );
});

test("a create that fails leaves nothing, and its key may be used again", async () => {
  fake.node.beforeStart = async () => {
    throw new Error("LAUNCH_FAILED");
  };
  expect(await reasonOf(fake.create({ createKey: "fails-0001" }))).toBe("LAUNCH_FAILED");
  expect(fake.edge.core.ledger.total).toEqual({ sandboxes: 0, cpuCores: 0, memoryMb: 0 });
  expect(fake.edge.core.registry.byId.size).toBe(0);
  fake.node.beforeStart = undefined;
  fake.node.handler = (peer, request) => {
    if (request.call.case !== "configure") return false;
    peer.socket.destroy();
    return true;
  };
  expect(await reasonOf(fake.create({ createKey: "fails-0001" }))).toBe("LAUNCH_FAILED");
  expect(fake.node.aethers.size).toBe(0);
  fake.node.handler = undefined;
  expect((await fake.create({ createKey: "fails-0001" })).state).toBe(SandboxState.RUNNING);
});

test("a deadline that has passed, or passes, is refused and cleaned", async () => {
  expect(await reasonOf(fake.create({ deadlineUnixMs: BigInt(Date.now() - 1) }))).toBe("DEADLINE_EXCEEDED");
  fake.node.handler = (_peer, request) => request.call.case === "configure";
  expect(await reasonOf(fake.create({ deadlineUnixMs: BigInt(Date.now() + 300) }))).toBe("DEADLINE_EXCEEDED");
  expect(fake.node.aethers.size).toBe(0);
  expect(fake.edge.core.ledger.total.sandboxes).toBe(0);
});

test("stop while it is made ends it", async () => {
  fake.node.handler = (_peer, request) => request.call.case === "configure";
  const made = errorOf(fake.create({ createKey: "stopped-01" }));
  await until(
    () => [...fake.node.aethers.values()].some((a) => a.requests.some((r) => r.call.case === "configure")),
    "the ping",
  );
  const sandboxId = [...fake.node.aethers.keys()][0] as string;
  await fake.client.sandboxes.stopSandbox({ sandboxId });
  expect((await made).reason).toBe("SANDBOX_ENDED");
  expect(fake.node.aethers.size).toBe(0);
  expect(fake.edge.core.ledger.total.sandboxes).toBe(0);
});

test("kept files stay until their time or a delete", async () => {
  const { sandboxId } = await fake.create();
  const { sandbox } = await fake.client.sandboxes.stopSandbox({ sandboxId, keepMs: 60_000n });
  expect(sandbox?.state).toBe(SandboxState.STOPPED);
  expect(await reasonOf(fake.client.commands.exec({ sandboxId, spec: { what: { case: "shell", value: "x" } } }))).toBe(
    "SANDBOX_STOPPED",
  );
  expect((await fake.client.sandboxes.getUsage({ sandboxId })).usage?.cpuSeconds).toBe(1.5);
  await fake.restart();
  await until(() => fake.edge.core.hostd.connected, "hostd");
  expect((await fake.client.sandboxes.getSandbox({ sandboxId })).sandbox?.state).toBe(SandboxState.STOPPED);
  fake.clock.advance(61_000);
  fake.edge.clocks.tick();
  await until(() => fake.node.kept.size === 0, "the end of what was kept");
  expect(await reasonOf(fake.client.sandboxes.getSandbox({ sandboxId }))).toBe("SANDBOX_ENDED");
});

test("life ends at its time, extend makes it the later of two", async () => {
  const { sandboxId, expiresAtMs } = await fake.create({ ttlMs: 300_000n });
  expect(
    (await fake.client.sandboxes.extendSandbox({ sandboxId, byMs: 10_000n })).expiresAtMs - expiresAtMs,
  ).toBeLessThan(1000n);
  const later = await fake.client.sandboxes.extendSandbox({ sandboxId, byMs: 600_000n });
  expect(Number(later.expiresAtMs - expiresAtMs)).toBeGreaterThan(290_000);
  fake.clock.wallShift = 5 * 3_600_000;
  fake.edge.clocks.tick();
  expect((await fake.client.sandboxes.getSandbox({ sandboxId })).sandbox?.state).toBe(SandboxState.RUNNING);
  await fake.restart();
  fake.clock.advance(590_000);
  fake.edge.clocks.tick();
  expect((await fake.client.sandboxes.getSandbox({ sandboxId })).sandbox?.state).toBe(SandboxState.RUNNING);
  fake.clock.advance(20_000);
  fake.edge.clocks.tick();
  await until(() => fake.node.aethers.size === 0, "the end");
  expect((await errorOf(fake.client.sandboxes.getSandbox({ sandboxId }))).metadata.end_reason).toBe("TTL");
});

test("idle ends it, a running command and a call do not", async () => {
  const { sandboxId } = await fake.create({ idleMs: 10_000n });
  const aether = fake.node.aethers.get(sandboxId);
  if (!aether) throw new Error("no aether");
  const alive = () => fake.node.aethers.has(sandboxId);
  const hellos = () => aether.requests.filter((r) => r.call.case === "hello").length;
  const tickAfter = async (ms: number, asks: boolean) => {
    const before = hellos();
    fake.clock.advance(ms);
    aether.idleMs += ms;
    fake.edge.clocks.tick();
    if (asks) await until(() => hellos() > before, "the question to aether");
    await new Promise((resolve) => setTimeout(resolve, 50));
  };
  aether.runningCommands = 1;
  await tickAfter(11_000, true);
  expect(alive()).toBe(true);
  aether.runningCommands = 0;
  aether.idleMs = 0;
  await tickAfter(9000, false);
  await fake.client.sandboxes.getSandbox({ sandboxId });
  expect(alive()).toBe(true);
  await fake.client.commands.exec({ sandboxId, spec: { what: { case: "shell", value: "x" } } });
  await tickAfter(9000, false);
  expect(alive()).toBe(true);
  await tickAfter(2000, true);
  await until(() => !alive(), "the idle end");
  expect((await errorOf(fake.client.sandboxes.getSandbox({ sandboxId }))).metadata.end_reason).toBe("IDLE");
});

test("what dies by itself is lost at once, with its cause", async () => {
  const { sandboxId } = await fake.create();
  fake.node.die(sandboxId, "OOM");
  await until(
    async () => (await errorOf(fake.client.sandboxes.getSandbox({ sandboxId })).catch(() => undefined)) !== undefined,
    "the end",
  );
  expect((await errorOf(fake.client.sandboxes.getSandbox({ sandboxId }))).metadata.end_reason).toBe("OOM");
  const other = (await fake.create()).sandboxId;
  fake.node.aethers.get(other)?.close();
  fake.node.aethers.delete(other);
  await until(() => fake.edge.core.registry.byId.size === 0, "the loss");
  expect(
    await reasonOf(fake.client.commands.exec({ sandboxId: other, spec: { what: { case: "shell", value: "x" } } })),
  ).toBe("SANDBOX_LOST");
  await until(() => fake.node.stopped.includes(other), "hostd's clean-up");
});

test("a call that hears of the end from aether first still tells the reason", async () => {
  const { sandboxId } = await fake.create();
  fake.node.handler = (peer, request) => {
    if (request.call.case !== "start") return false;
    peer.aether(request.id, { case: "error", value: { reason: "SANDBOX_LOST", message: "init has ended" } });
    setTimeout(() => fake.node.die(sandboxId, "OOM"), 50);
    return true;
  };
  const spec = { what: { case: "shell" as const, value: "x" } };
  const error = await errorOf(fake.client.commands.exec({ sandboxId, spec }));
  expect(error.metadata.end_reason).toBe("OOM");
});

test("a control connection that breaks is made again; the sandbox goes on", async () => {
  const { sandboxId } = await fake.create();
  const aether = fake.node.aethers.get(sandboxId);
  const hellos = () => aether?.requests.filter((r) => r.call.case === "hello").length ?? 0;
  const before = hellos();
  for (const peer of aether?.peers ?? []) peer.socket.destroy();
  await until(() => hellos() === before + 1, "the next hello");
  await until(async () => {
    const call = fake.client.commands.signal({ sandboxId, commandId: "c", signal: "TERM" });
    return (await errorOf(call).catch(() => undefined))?.reason !== "UNAVAILABLE";
  }, "calls again");
  expect((await fake.client.sandboxes.getSandbox({ sandboxId })).sandbox?.state).toBe(SandboxState.RUNNING);
  fake.node.handler = (peer, request) => {
    if (request.call.case !== "hello") return false;
    peer.socket.destroy();
    return true;
  };
  const tried = hellos();
  for (const peer of aether?.peers ?? []) peer.socket.destroy();
  await until(() => fake.node.stopped.includes(sandboxId), "the loss");
  expect(hellos()).toBe(tried + 1);
});

test("after a restart what lives goes on, the rest is lost, and what nobody knows is ended", async () => {
  const a = (await fake.create({ labels: { n: "a" }, createKey: "restart-01" })).sandboxId;
  const b = (await fake.create()).sandboxId;
  await fake.edge.stop();
  fake.node.aethers.get(b)?.close();
  fake.node.aethers.delete(b);
  fake.node.start("e1strangerstrangerstr");
  await fake.boot();
  const { sandbox } = await fake.client.sandboxes.getSandbox({ sandboxId: a });
  expect([sandbox?.state, sandbox?.labels.n]).toEqual([SandboxState.RUNNING, "a"]);
  expect(await reasonOf(fake.client.sandboxes.getSandbox({ sandboxId: b }))).toBe("SANDBOX_LOST");
  await until(() => fake.node.stopped.includes("e1strangerstrangerstr"), "the stranger's end");
  expect((await fake.create({ createKey: "restart-01" })).sandboxId).toBe(a);
  expect(fake.edge.core.ledger.total.sandboxes).toBe(1);
});

test("a file that is damaged or of a newer version ends its sandbox, and says so by its absence", async () => {
  const { readFileSync, writeFileSync, existsSync } = await import("node:fs");
  const [a, b] = [(await fake.create()).sandboxId, (await fake.create()).sandboxId];
  await fake.edge.stop();
  const path = (id: string) => `${fake.dir}/edges/e1/sandboxes/${id}.json`;
  writeFileSync(path(a), readFileSync(path(a), "utf8").slice(0, 50));
  writeFileSync(path(b), readFileSync(path(b), "utf8").replace('"version":1', '"version":2'));
  await fake.boot();
  await until(() => fake.node.stopped.includes(a) && fake.node.stopped.includes(b), "the ends");
  expect([existsSync(path(a)), existsSync(path(b))]).toEqual([false, true]);
  expect(await reasonOf(fake.client.sandboxes.getSandbox({ sandboxId: a }))).toBe("SANDBOX_NOT_FOUND");
});

test("another boot of the node means that everything is gone", async () => {
  const { sandboxId } = await fake.create();
  await fake.edge.stop();
  fake.bootId = "another";
  await fake.boot();
  const error = await errorOf(fake.client.sandboxes.getSandbox({ sandboxId }));
  expect([error.reason, error.metadata.end_reason]).toEqual(["SANDBOX_LOST", "NODE_REBOOT"]);
});

test("hostd may die and come back", async () => {
  const { sandboxId } = await fake.create();
  fake.node.kill();
  await until(() => !fake.edge.core.hostd.connected, "the break");
  await fake.client.commands.exec({ sandboxId, spec: { what: { case: "shell", value: "x" } } });
  const stop = fake.client.sandboxes.stopSandbox({ sandboxId });
  fake.node.listen();
  expect((await stop).sandbox?.endReason).toBe(EndReason.STOPPED);
  expect((await fake.create()).state).toBe(SandboxState.RUNNING);
});

test("lists are filtered, sorted and paged", async () => {
  const made = [];
  for (let i = 0; i < 5; i++)
    made.push((await fake.create({ labels: { odd: String(i % 2) }, project: "root/p", job: `j${i}` })).sandboxId);
  made.sort();
  const list = (filter: object) => fake.client.sandboxes.listSandboxes(filter);
  expect((await list({})).sandboxes).toEqual([]);
  const first = await list({ recursive: true, pageSize: 2 });
  expect(first.sandboxes.map((s) => s.sandboxId)).toEqual(made.slice(0, 2));
  const second = await list({ recursive: true, pageSize: 3, pageToken: first.nextPageToken });
  expect(second.sandboxes.map((s) => s.sandboxId)).toEqual(made.slice(2));
  expect(second.nextPageToken).toBe("");
  expect((await list({ project: "root/p", labels: { odd: "1" } })).sandboxes.length).toBe(2);
  expect((await list({ project: "root/p", job: "j3" })).sandboxes.length).toBe(1);
  expect((await list({ project: "root/p", states: [SandboxState.STOPPED] })).sandboxes.length).toBe(0);
  expect(await reasonOf(list({ project: "other" }))).toBe("PROJECT_NOT_FOUND");
});

test("events tell what happened", async () => {
  const { sandboxId } = await fake.create();
  await fake.client.sandboxes.extendSandbox({ sandboxId, byMs: 25n * 3_600_000n });
  await fake.client.sandboxes.updateNetwork({ sandboxId, rules: { allow: { npm: false } }, version: 2n });
  await fake.client.sandboxes.stopSandbox({ sandboxId, keepMs: 1000n });
  const { events } = await fake.client.sandboxes.listEvents({ sandboxId });
  expect(events.map((e) => e.type)).toEqual(["CREATED", "READY", "EXTENDED", "NETWORK_UPDATED", "STOPPING", "ENDED"]);
  expect(events.at(-1)?.endReason).toBe(EndReason.STOPPED);
});

test("another project's sandbox is unknown, and roles hold", async () => {
  const { sandboxId } = await fake.create({ project: "root/p" });
  const other = await fake.as("root/q", "admin");
  expect(await reasonOf(other.sandboxes.getSandbox({ sandboxId }))).toBe("SANDBOX_NOT_FOUND");
  expect(await reasonOf(other.sandboxes.stopSandbox({ sandboxId }))).toBe("SANDBOX_NOT_FOUND");
  expect((await other.http("GET", `/v1/sandboxes/${sandboxId}/file?path=/x`)).status).toBe(404);
  const viewer = await fake.as("root", "viewer");
  expect((await viewer.sandboxes.getSandbox({ sandboxId })).sandbox?.sandboxId).toBe(sandboxId);
  expect(await reasonOf(viewer.sandboxes.stopSandbox({ sandboxId }))).toBe("PERMISSION_DENIED");
  expect((await viewer.http("GET", `/v1/sandboxes/${sandboxId}/file?path=/x`)).status).toBe(403);
  expect((await (await fake.as("root", "developer")).http("POST", "/v1/layers?kind=base", "x")).status).toBe(403);
  const { EdgeClient } = await import("./support/client.ts");
  const nobody = new EdgeClient(fake.client.socketPath, "x.y.z");
  expect(await reasonOf(nobody.sandboxes.getSandbox({ sandboxId }))).toBe("UNAUTHENTICATED");
  nobody.close();
  expect(await reasonOf(fake.client.edge.edgeCreate(createRequest({ project: "elsewhere" })))).toBe(
    "PROJECT_NOT_FOUND",
  );
});

test("the snapshot counts requests by project", async () => {
  await fake.create({ project: "root/p" });
  await fake.create({
    project: "root/p",
    backend: { case: "container", value: { memoryRequestMb: 100n, cpuCoresRequest: 1 } },
  });
  const { status } = await fake.client.edge.snapshot({});
  expect(status).toMatchObject({ edge: "e1", healthy: true, accepting: true, sandboxes: 2, memoryMbRequested: 132n });
  expect(status?.projects[0]).toMatchObject({ project: "root/p", sandboxes: 2, memoryMb: 132n, cpuCores: 1.02 });
  expect(Number(status?.generation)).toBeGreaterThan(0);
});
