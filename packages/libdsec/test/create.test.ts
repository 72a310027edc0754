import { Code, ConnectError } from "@connectrpc/connect";
import { type CreateSandboxRequest, DsecError, SandboxService } from "@dsec/api";
import { expect, test } from "vitest";
import { TestServer } from "./support/server.ts";

const idOf = (n: number) => `e1${"a".repeat(19)}${"abcdefghijklmnopqrstuvwxyz234567"[n % 32]}`;

async function serverOf(
  answer: (request: CreateSandboxRequest, n: number, cut: () => void) => string | Promise<string>,
) {
  const seen: CreateSandboxRequest[] = [];
  const stopped: string[] = [];
  const server: TestServer = await TestServer.start((router) =>
    router.service(SandboxService, {
      createSandbox: async (request) => {
        seen.push(request);
        return { sandbox: { sandboxId: await answer(request, seen.length, () => server.cut()) } };
      },
      stopSandbox: ({ sandboxId }) => {
        stopped.push(sandboxId);
        return { sandbox: { sandboxId } };
      },
    }),
  );
  return { server, seen, stopped };
}

test("a create whose connection breaks is sent again with its key and deadline, and says that it is a retry", async () => {
  const { server, seen } = await serverOf((_, n, cut) => {
    if (n < 3) cut();
    return idOf(0);
  });
  await using _ = server;
  const sandbox = await server.client().runContainer({ containerImage: "debian", labels: { a: "b" } });
  expect(sandbox.id).toBe(idOf(0));
  expect(seen.map((request) => request.retry)).toEqual([false, true, true]);
  expect(new Set(seen.map((request) => request.createKey)).size).toBe(1);
  expect(new Set(seen.map((request) => request.deadlineUnixMs)).size).toBe(1);
  expect(seen[0]!.createKey).toMatch(/^[A-Za-z0-9_-]{8,64}$/);
});

test("a full platform is waited for; the answers were clear, so no attempt is a retry", async () => {
  const { server, seen } = await serverOf((_, n) => {
    if (n < 3) throw new DsecError("CAPACITY_FULL", "no room", { retryAfterMs: 10 }).toConnect();
    return idOf(0);
  });
  await using _ = server;
  await server.client().runContainer({ containerImage: "debian" });
  expect(seen.map((request) => request.retry)).toEqual([false, false, false]);
});

test("a platform that stays full gives CAPACITY_FULL when the time is over", async () => {
  const { server } = await serverOf(() => {
    throw new DsecError("CAPACITY_FULL", "no room", { retryAfterMs: 10 }).toConnect();
  });
  await using _ = server;
  await expect(server.client().runContainer({ containerImage: "debian", timeoutMs: 200 })).rejects.toMatchObject({
    reason: "CAPACITY_FULL",
    outcome: "",
  });
});

test("a used-up quota fails at once, and is waited for where that was asked", async () => {
  const { server, seen } = await serverOf((_, n) => {
    if (n < 3) throw new DsecError("QUOTA_EXCEEDED", "50 of 50", { retryAfterMs: 5 }).toConnect();
    return idOf(0);
  });
  await using _ = server;
  await expect(server.client().runContainer({ containerImage: "debian" })).rejects.toMatchObject({
    reason: "QUOTA_EXCEEDED",
  });
  expect(seen.length).toBe(1);
  await server.client().runContainer({ containerImage: "debian", waitForQuota: true });
});

test("what can never succeed is not tried again", async () => {
  const { server, seen } = await serverOf(() => {
    throw new DsecError("NEVER_FITS", "1 TiB", {}).toConnect();
  });
  await using _ = server;
  await expect(server.client().runContainer({ containerImage: "debian" })).rejects.toMatchObject({
    reason: "NEVER_FITS",
    retryable: false,
  });
  expect(seen.length).toBe(1);
});

test("after an attempt without an answer, an interruption at the end leaves the outcome unknown", async () => {
  const { server } = await serverOf((_, n, cut) => {
    if (n === 1) cut();
    throw new ConnectError("away", Code.Unavailable);
  });
  await using _ = server;
  await expect(server.client().runContainer({ containerImage: "debian", timeoutMs: 300 })).rejects.toMatchObject({
    reason: "UNAVAILABLE",
    outcome: "unknown",
  });
});

test("limits of zero, and an image that is missing, are told before anything is sent", async () => {
  const { server, seen } = await serverOf(() => idOf(0));
  await using _ = server;
  const client = server.client();
  await expect(client.runContainer({ containerImage: "debian", memoryLimitMb: 0 })).rejects.toMatchObject({
    reason: "INVALID_LIMIT",
  });
  await expect(client.runContainer({ containerImage: "debian", cpuCoresLimit: Number.NaN })).rejects.toMatchObject({
    reason: "INVALID_LIMIT",
  });
  await expect(client.runContainer({ containerImage: "" })).rejects.toMatchObject({ reason: "INVALID_ARGUMENT" });
  expect(seen.length).toBe(0);
});

test("a burst gives one result for each, with no more in flight than was asked", async () => {
  let now = 0;
  let most = 0;
  const { server, seen } = await serverOf(async (_, n) => {
    most = Math.max(most, ++now);
    await new Promise((resolve) => setTimeout(resolve, 5));
    now--;
    if (n % 5 === 0) throw new DsecError("NEVER_FITS", "no").toConnect();
    return idOf(n);
  });
  await using _ = server;
  const results = [];
  for await (const result of server.client().runContainers({ containerImage: "debian", count: 40, concurrency: 6 }))
    results.push(result);
  expect(results.map((result) => result.index).sort((a, b) => a - b)).toEqual(Array.from({ length: 40 }, (_, i) => i));
  expect(results.filter((result) => result.error?.reason === "NEVER_FITS").length).toBe(8);
  expect(most).toBe(6);
  expect(new Set(seen.map((request) => request.createKey)).size).toBe(40);
});

test("leaving a burst early stops what was not given", async () => {
  const { server, seen, stopped } = await serverOf((_, n) => idOf(n));
  await using _ = server;
  for await (const result of server.client().runContainers({ containerImage: "debian", count: 100, concurrency: 4 })) {
    expect(result.sandbox).toBeDefined();
    await new Promise((resolve) => setTimeout(resolve, 20));
    break;
  }
  expect(stopped.length).toBeGreaterThan(0);
  expect(stopped.length).toBeLessThanOrEqual(seen.length - 1);
});

test("a create that is given up leaves no sandbox: what came of it is asked for by its key, and stopped", async () => {
  const { server, seen, stopped } = await serverOf((request) =>
    request.retry ? idOf(3) : new Promise<string>(() => {}),
  );
  await using _ = server;
  {
    await using client = server.client();
    const creating = client.runContainer({ containerImage: "debian", signal: AbortSignal.timeout(50) });
    await expect(creating).rejects.toMatchObject({ reason: "CANCELLED" });
  }
  expect(seen.map(({ createKey }) => createKey)).toEqual([seen[0]!.createKey, seen[0]!.createKey]);
  expect(stopped).toEqual([idOf(3)]);
});

test("an abort ends a create that waits", async () => {
  const { server } = await serverOf(() => new Promise<string>(() => {}));
  await using _ = server;
  const creating = server.client().runContainer({ containerImage: "debian", signal: AbortSignal.timeout(50) });
  await expect(creating).rejects.toMatchObject({ reason: "CANCELLED" });
});
