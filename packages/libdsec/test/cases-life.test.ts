// Cases from the field: a sandbox's life, and what an environment brings.
import { expect, test } from "vitest";
import { baseTar } from "../../../e2e/support/environment.ts";
import { onPlatform } from "./support/platform.ts";

const on = onPlatform();

test("extend makes the end the later of what it is and now + n", async () => {
  await using sandbox = await on.client.runContainer({ containerImage: "base", ttlMs: 300_000 });
  const end = (await sandbox.info()).expiresAt!.getTime();
  // The edge keeps its clocks on another scale: a millisecond of rounding.
  expect(Math.abs((await sandbox.extend(10_000)).getTime() - end)).toBeLessThan(10);
  const later = (await sandbox.extend(600_000)).getTime();
  expect(later).toBeGreaterThan(end + 200_000);
  expect(Math.abs((await sandbox.info()).expiresAt!.getTime() - later)).toBeLessThan(10);
});

test("an idle sandbox ends with its reason; a call into it puts idle back", async () => {
  const sandbox = await on.client.runContainer({ containerImage: "base", ttlRunningStopMs: 1500 });
  for (let i = 0; i < 4; i++) {
    await new Promise((resolve) => setTimeout(resolve, 700));
    expect((await sandbox.exec(["true"])).exitCode).toBe(0);
  }
  let error: unknown;
  for (let i = 0; i < 100 && !error; i++) {
    await new Promise((resolve) => setTimeout(resolve, 100));
    await sandbox.info().catch((thrown) => {
      error = thrown;
    });
  }
  expect(error).toMatchObject({ reason: "SANDBOX_ENDED", metadata: { end_reason: "IDLE" } });
});

test("the end of life comes though it is used", async () => {
  const sandbox = await on.client.runContainer({ containerImage: "base", ttlMs: 1500 });
  let error: unknown;
  for (let i = 0; i < 100 && !error; i++) {
    await sandbox.exec(["sleep", "0.1"]).catch((thrown) => {
      error = thrown;
    });
  }
  expect(error).toMatchObject({ reason: "SANDBOX_ENDED", metadata: { end_reason: "TTL" } });
  await expect(sandbox.info()).rejects.toMatchObject({ reason: "SANDBOX_ENDED", metadata: { end_reason: "TTL" } });
  await expect(sandbox.exec(["true"])).rejects.toMatchObject({ reason: "SANDBOX_ENDED" });
});

test("calls under way when a sandbox is stopped say that it ended, whoever saw it first", async () => {
  const reasons = new Set<string>();
  for (let round = 0; round < 8; round++) {
    const sandbox = await on.client.runContainer({ containerImage: "base" });
    // Commands that are running, and commands that come in at the moment of the end.
    const calls = Array.from({ length: 6 }, (_, i) => sandbox.exec(["sleep", i < 3 ? "20" : "0.01"]).then(() => "ran"));
    const ends = calls.map((call) => call.catch((error: { reason: string }) => error.reason));
    await sandbox.stop();
    for (const reason of await Promise.all(ends)) reasons.add(reason);
  }
  reasons.delete("ran");
  expect([...reasons]).toEqual(["SANDBOX_ENDED"]);
});

test("stop and delete are accepted twice; afterwards calls say that it ended", async () => {
  const sandbox = await on.client.runContainer({ containerImage: "base" });
  await sandbox.stop();
  await sandbox.stop();
  await sandbox.delete();
  await sandbox.delete();
  await expect(sandbox.exec(["true"])).rejects.toMatchObject({
    reason: "SANDBOX_ENDED",
    metadata: { end_reason: "STOPPED" },
  });
});

test("what is kept after stop takes no commands, and goes with delete", async () => {
  const sandbox = await on.client.runContainer({ containerImage: "base" });
  expect((await sandbox.stop({ keepMs: 60_000 })).state).toBe("STOPPED");
  await expect(sandbox.exec(["true"])).rejects.toMatchObject({ reason: "SANDBOX_STOPPED" });
  await sandbox.delete();
  await expect(sandbox.info()).rejects.toMatchObject({ reason: "SANDBOX_ENDED" });
});

test("lists follow labels, job and pages; a handle is found again by ID", async () => {
  const labels = { suite: "life" };
  const made: string[] = [];
  for await (const { sandbox, error } of on.client.runContainers({
    containerImage: "base",
    count: 7,
    labels,
    job: "j1",
  })) {
    if (error) throw error;
    made.push(sandbox.id);
  }
  const listed = [];
  for await (const info of on.client.list({ labels, job: "j1", pageSize: 3 })) listed.push(info.id);
  expect(listed.sort()).toEqual(made.sort());
  for await (const _ of on.client.list({ labels: { suite: "other" } })) expect.unreachable();
  const again = await on.client.connect(made[0]!);
  expect((await again.exec(["echo", "found"])).stdout).toBe("found\n");
  await Promise.all(made.map((id) => on.client.sandbox(id).stop()));
});

test("the same create key never makes two; with other arguments it is refused", async () => {
  const createKey = "test-key-0001";
  const [a, b] = await Promise.all(
    [1, 2].map(() => on.client.runContainer({ containerImage: "base", createKey }).catch((error) => error)),
  );
  const first = a.id ? a : b;
  const again = await on.client.runContainer({ containerImage: "base", createKey }).catch((error) => error);
  if (again.id) expect(again.id).toBe(first.id);
  else expect(again.reason).toMatch(/ALREADY|IDEMPOTENCY|SUPERSEDED/);
  await first.stop();
});

test("events tell the life, usage tells the use", async () => {
  const sandbox = await on.client.runContainer({ containerImage: "base" });
  await sandbox.runShell("head -c 3000000 /dev/urandom > /root/f; i=0; while ((i++ < 100000)); do :; done");
  const usage = await sandbox.usage();
  expect(usage.cpuSeconds).toBeGreaterThan(0);
  expect(usage.peakMemoryBytes).toBeGreaterThan(0);
  expect((await sandbox.events()).map((event) => event.type)).toEqual(expect.arrayContaining(["CREATED", "READY"]));
  await sandbox.stop();
  // Why it ended can be read from then on too.
  expect((await sandbox.events()).at(-1)).toMatchObject({ type: "ENDED", endReason: "STOPPED" });
});

test("variables of the image are in commands, sessions and login shells", async () => {
  const env = ["FOO=from the image", "PATH=/opt/own:/usr/bin:/bin"];
  await on.client.layers.import({ kind: "base", name: "withenv", path: baseTar, env });
  await on.client.layers.import({ kind: "workspace", name: "support", directory: `${import.meta.dirname}/support` });
  await using sandbox = await on.client.runContainer({
    containerImage: "withenv",
    workspace: "support",
    env: { BAR: "given" },
  });
  expect((await sandbox.exec(["sh", "-c", "echo $FOO,$BAR,$PATH"])).stdout).toBe(
    "from the image,given,/opt/own:/usr/bin:/bin\n",
  );
  await using session = await sandbox.session();
  expect((await session.run("echo $FOO,$BAR,$PATH")).stdout).toBe("from the image,given,/opt/own:/usr/bin:/bin\n");
  expect((await sandbox.exec(["bash", "-lc", "echo $FOO"])).stdout).toBe("from the image\n");
  expect(await sandbox.files.exists("/platform.ts")).toBe(true);
});

test("wrong arguments give the error that names them, and leave nothing", async () => {
  const wrong = async (args: Partial<Parameters<typeof on.client.runContainer>[0]>) =>
    on.client.runContainer({ containerImage: "base", ...args }).then(
      (s) => s.stop().then(() => "made"),
      (error) => error.reason,
    );
  expect(await wrong({ containerImage: "nothing" })).toBe("LAYER_NOT_FOUND");
  expect(await wrong({ workspace: "base" })).toBe("LAYER_KIND_MISMATCH");
  await expect(on.sandbox.exec(["true"], { user: "nobody-of-that-name" })).rejects.toMatchObject({
    reason: "INVALID_USER",
  });
  expect(await wrong({ memoryRequestMb: 1 << 30 })).toMatch(/NEVER_FITS|INVALID_LIMIT/);
  expect(await wrong({ networkRules: { "not a domain": true } })).toBe("INVALID_NETWORK_RULE");
  expect(await wrong({ networkRules: { pypi: true }, strict: true })).toBe("NOT_STRICT");
});

test("network rules are kept, with a notice that there is only loopback", async () => {
  await using sandbox = await on.client.runContainer({
    containerImage: "base",
    networkRules: { npm: false, pypi: true },
  });
  expect(sandbox.notices.map((notice) => notice.reason)).toContain("ONLY_LOOPBACK");
  const { version } = await sandbox.updateNetwork({ npm: true }, 5);
  expect(version).toBe(5);
  expect((await sandbox.updateNetwork({ npm: false }, 4)).version).toBe(5);
  expect((await sandbox.info()).networkRules).toEqual({ npm: true });
});
