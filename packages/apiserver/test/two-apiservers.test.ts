import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { request as httpRequest } from "node:http";
import { join } from "node:path";
import { exportJWK, generateKeyPair } from "jose";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Postgres, postgresMissing, startPostgres } from "../../iam/test/support/postgres.ts";
import { parseSettings } from "../src/settings.ts";
import { importBase, type Platform, reasonOf, rpc, send, startPlatform } from "./support/platform.ts";

const missing = postgresMissing();
if (missing !== undefined) process.stderr.write(`skipped: two apiservers on one PostgreSQL: ${missing}\n`);

describe.skipIf(missing !== undefined)("two apiservers on one PostgreSQL", () => {
  let database: Postgres;
  let platform: Platform;
  let ports: [number, number];
  beforeAll(async () => {
    database = await startPostgres();
    platform = await startPlatform({ edges: ["ea", "eb", "ec"], database: { url: database.url }, apiservers: 2 });
    ports = platform.apiservers.map((server) => server.port) as [number, number];
    await importBase(platform);
  });
  afterAll(async () => {
    await platform?.[Symbol.asyncDispose]();
    await database?.remove();
  });
  const container = { image: "debian" };
  const made = () => platform.edges.reduce((sum, edge) => sum + edge.made.size, 0);

  test("started at once they make one first key, which both take", async () => {
    for (const port of ports)
      expect((await rpc(port, platform.key, "IamService/WhoAmI")).json.key.name).toBe("first key");
    const keys = (await rpc(ports[1], platform.key, "IamService/ListKeys")).json.keys;
    expect(keys).toHaveLength(1);
  });

  test("what one makes the other serves, and a retry at the other finds the first one's sandbox", async () => {
    const createKey = "at-the-other-1";
    const first = await rpc(ports[0], platform.key, "SandboxService/CreateSandbox", { container, createKey });
    const retry = await rpc(ports[1], platform.key, "SandboxService/CreateSandbox", {
      container,
      createKey,
      retry: true,
    });
    expect(retry.json.sandbox.sandboxId).toBe(first.json.sandbox.sandboxId);
    const { sandboxId } = first.json.sandbox;
    expect((await rpc(ports[1], platform.key, "CommandService/Exec", { sandboxId })).status).toBe(200);
  });

  test("retries at both at once, with connections cut at random, never make two sandboxes for one key", async () => {
    const before = made();
    let seed = 20_261_129;
    const random = (n: number) => {
      seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0;
      return Math.floor((seed / 2 ** 32) * n);
    };
    const rounds = 25;
    for (let round = 0; round < rounds; round++) {
      const createKey = `two-servers-${round}`;
      for (const edge of platform.edges) {
        edge.cutCreate = [undefined, "before", "after"][random(3)] as never;
        edge.createMs = random(10);
      }
      const attempt = (port: number, retry: boolean) =>
        rpc(port, platform.key, "SandboxService/CreateSandbox", { container, createKey, retry }).catch(() => undefined);
      await Promise.all([attempt(ports[0], false), attempt(ports[1], true), attempt(ports[random(2)] as number, true)]);
      for (const edge of platform.edges) edge.cutCreate = undefined;
      let ready: Awaited<ReturnType<typeof rpc>> | undefined;
      for (let tries = 0; tries < 20 && ready?.status !== 200; tries++)
        ready = await attempt(ports[random(2)] as number, true);
      expect(ready?.status, ready?.body.toString()).toBe(200);
      expect(made() - before, `round ${round}`).toBe(round + 1);
    }
    for (const edge of platform.edges) edge.createMs = 0;
  });

  test("a key revoked at one ends at the other, with its open streams", async () => {
    const { key, secret } = (await rpc(ports[0], platform.key, "IamService/CreateKey", { role: "ROLE_DEVELOPER" }))
      .json;
    const path = `/v1/sandboxes/ea${"a".repeat(20)}/file?path=/endless&length=10`;
    const cut = new Promise((resolve, reject) => {
      const request = httpRequest(
        { port: ports[1], path, headers: { authorization: `Bearer ${secret}` }, agent: false },
        (answer) => {
          answer.on("error", () => {});
          answer.resume().on("close", resolve);
          void rpc(ports[0], platform.key, "IamService/RevokeKey", { keyId: key.keyId });
        },
      );
      request.on("error", reject);
      request.end();
    });
    await cut;
    expect(reasonOf(await rpc(ports[1], secret, "IamService/WhoAmI"))).toBe("UNAUTHENTICATED");
  });

  test("with the database away known keys create and run, new ones are told, and all is well when it is back", async () => {
    const { secret } = (await rpc(ports[0], platform.key, "IamService/CreateKey", { role: "ROLE_DEVELOPER" })).json;
    for (const port of ports) await rpc(port, platform.key, "SandboxService/CreateSandbox", { container });
    await database.kill();
    // Beyond what any cache calls fresh.
    await new Promise((resolve) => setTimeout(resolve, 3_500));
    for (const port of ports) {
      const created = await rpc(port, platform.key, "SandboxService/CreateSandbox", { container });
      expect(created.status, created.body.toString()).toBe(200);
      const { sandboxId } = created.json.sandbox;
      expect((await rpc(port, platform.key, "CommandService/Exec", { sandboxId })).status).toBe(200);
    }
    const unknown = await rpc(ports[0], secret, "SandboxService/ListSandboxes");
    expect([unknown.status, reasonOf(unknown)]).toEqual([503, "DATABASE_UNAVAILABLE"]);
    expect(reasonOf(await rpc(ports[0], platform.key, "IamService/ListKeys"))).toBe("DATABASE_UNAVAILABLE");
    await database.start();
    for (let tries = 0; tries < 100; tries++) {
      if ((await rpc(ports[0], secret, "SandboxService/ListSandboxes")).status === 200) break;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    expect((await rpc(ports[0], secret, "SandboxService/ListSandboxes")).status).toBe(200);
  });
});

test("settings say which field is wrong, and other addresses than loopback are served only when allowed", () => {
  const good = { edges: [], database: { pgliteDir: "memory://" }, principalPrivateKeyFile: "k", firstKeyFile: "f" };
  expect(parseSettings(good)).toMatchObject({ host: "127.0.0.1", port: 7878 });
  for (const host of ["0.0.0.0", "::", "10.0.0.1", "example.org", "127.evil.org"]) {
    expect(() => parseSettings({ ...good, host })).toThrow("loopback");
    expect(parseSettings({ ...good, host, allowNonLoopback: true }).host).toBe(host);
  }
  for (const host of ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
    expect(parseSettings({ ...good, host }).host).toBe(host);
  expect(() => parseSettings({ ...good, port: 70_000 })).toThrow("port");
  expect(() => parseSettings({ ...good, database: {} })).toThrow("database");
  expect(() => parseSettings({ ...good, edges: [{ edge: "A", socket: "s" }] })).toThrow("edge");
  expect(() =>
    parseSettings({
      ...good,
      edges: [
        { edge: "a", socket: "s" },
        { edge: "a", socket: "t" },
      ],
    }),
  ).toThrow("twice");
});

test("the program says when it serves, keeps keys over a restart, and ends on SIGTERM", async () => {
  const dir = mkdtempSync("/run/dsec-test-");
  const pair = await generateKeyPair("EdDSA", { extractable: true });
  writeFileSync(join(dir, "private.jwk"), JSON.stringify(await exportJWK(pair.privateKey)), { mode: 0o600 });
  const settings = {
    port: 0,
    edges: [{ edge: "ea", socket: join(dir, "none.sock") }],
    database: { pgliteDir: join(dir, "pg") },
    principalPrivateKeyFile: join(dir, "private.jwk"),
    firstKeyFile: join(dir, "first-key"),
  };
  writeFileSync(join(dir, "settings.json"), JSON.stringify(settings));
  let key = "";
  for (let round = 0; round < 2; round++) {
    const args = [join(import.meta.dirname, "../src/main.ts"), "--config", join(dir, "settings.json")];
    const server = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "pipe"] });
    let log = "";
    server.stderr.on("data", (chunk) => {
      log += chunk;
    });
    const [line] = await once(server.stdout, "data");
    const { ready, port } = JSON.parse(String(line));
    expect(ready).toBe(true);
    if (round === 0) key = readFileSync(join(dir, "first-key"), "utf8").trim();
    expect(statSync(join(dir, "first-key")).mode & 0o777).toBe(0o600);
    expect((await rpc(port, key, "IamService/WhoAmI")).json.key.project).toBe("main");
    expect((await send(port, "/healthz", { method: "GET" })).status).toBe(200);
    server.kill("SIGTERM");
    const [code] = await once(server, "exit");
    expect([code, log.includes(key)]).toEqual([0, false]);
  }
  rmSync(dir, { recursive: true });
});
