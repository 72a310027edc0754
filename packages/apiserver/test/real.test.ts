// The apiserver before a real edge, hostd and aether.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { exportJWK, type CryptoKey as JoseKey } from "jose";
import { pino } from "pino";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { cannotRun, RealNode } from "../../edge/test/support/real-node.ts";
import { type Apiserver, startApiserver } from "../src/apiserver.ts";
import { parseSettings } from "../src/settings.ts";
import { type Answer, reasonOf, rpc, send } from "./support/platform.ts";

const why = cannotRun();
if (why !== "") process.stderr.write(`skipped: the apiserver before a real edge: ${why}\n`);

describe.skipIf(why !== "")("the apiserver before a real edge", () => {
  let node: RealNode;
  let dir: string;
  let apiserver: Apiserver;
  let key: string;

  beforeAll(async () => {
    node = await RealNode.start();
    dir = mkdtempSync("/run/dsec-test-");
    const privateKey = Reflect.get(node.signer, "key") as JoseKey;
    writeFileSync(join(dir, "private.jwk"), JSON.stringify(await exportJWK(privateKey)), { mode: 0o600 });
    const settings = parseSettings({
      port: 0,
      edges: [{ edge: node.name, socket: join(node.runDir, "edge.sock") }],
      database: { pgliteDir: "memory://" },
      principalPrivateKeyFile: join(dir, "private.jwk"),
      firstKeyFile: join(dir, "first-key"),
    });
    apiserver = await startApiserver(settings, pino({ level: "silent" }));
    key = readFileSync(join(dir, "first-key"), "utf8").trim();
    const tree = mkdtempSync(join(dir, "tree-"));
    const script =
      'cd "$1"; mkdir -p bin etc root tmp dev proc sys run; cp /usr/bin/busybox bin/; for n in $(busybox --list); do [ $n = busybox ] || ln -s busybox bin/$n; done; echo root:x:0:0:root:/root:/bin/sh > etc/passwd; echo root:x:0: > etc/group';
    execFileSync("sh", ["-ec", script, "sh", tree]);
    const tar = execFileSync("tar", ["-C", tree, "--owner=0", "--group=0", "-cf", "-", "."], { maxBuffer: 1 << 28 });
    const imported = await send(
      apiserver.port,
      "/v1/layers?kind=base&name=busybox&format=tar&project=public&env=FOO=bar",
      { key, body: tar },
    );
    expect(imported.json.layer, imported.body.toString()).toMatchObject({
      name: "public/busybox",
      version: 1,
      kind: "LAYER_KIND_BASE",
    });
  });
  afterAll(async () => {
    await apiserver?.stop();
    await node?.stop();
    if (dir !== undefined) rmSync(dir, { recursive: true, force: true });
  });

  const call = (method: string, message: object): Promise<Answer> => rpc(apiserver.port, key, method, message);
  const create = (more: object = {}) =>
    call("SandboxService/CreateSandbox", { container: { image: "busybox" }, ...more });
  const exec = async (sandboxId: string, shell: string) => {
    const answer = await call("CommandService/Exec", { sandboxId, spec: { shell } });
    expect(answer.status, answer.body.toString()).toBe(200);
    const { outcome, stdout } = answer.json.result;
    return { code: outcome.exitCode, out: Buffer.from(stdout?.data ?? "", "base64").toString() };
  };

  test("create, commands, stop; what has ended says so", async () => {
    const created = await create({ labels: { a: "b" } });
    expect(created.status, created.body.toString()).toBe(200);
    const { sandboxId } = created.json.sandbox;
    expect(await exec(sandboxId, "echo $FOO; exit 3")).toEqual({ code: 3, out: "bar\n" });
    const listed = await call("SandboxService/ListSandboxes", { labels: { a: "b" } });
    expect(listed.json.sandboxes.map((s: { sandboxId: string }) => s.sandboxId)).toEqual([sandboxId]);
    expect(reasonOf(await call("LayerService/DeleteLayer", { name: "public/busybox" }))).toBe("LAYER_IN_USE");
    expect((await call("SandboxService/StopSandbox", { sandboxId })).status).toBe(200);
    expect(reasonOf(await call("CommandService/Exec", { sandboxId, spec: { shell: "true" } }))).toBe("SANDBOX_ENDED");
  });

  test("files of any size go through as they are", async () => {
    const { sandboxId } = (await create()).json.sandbox;
    const body = Buffer.alloc(30_000_001, "0123456789abcdef");
    const path = `/v1/sandboxes/${sandboxId}/file?path=/tmp/large`;
    expect((await send(apiserver.port, path, { method: "PUT", key, body })).status).toBe(200);
    const back = await send(apiserver.port, path, { method: "GET", key });
    const digest = (bytes: Buffer) => createHash("sha256").update(bytes).digest("hex");
    expect(digest(back.body)).toBe(digest(body));
    await call("SandboxService/DeleteSandbox", { sandboxId });
  });

  test("40 creates at once on a quota of 10 give exactly 10, and stops make room", async () => {
    await call("IamService/CreateProject", { path: "main/q", quota: { sandboxes: 10 } });
    const answers = await Promise.all(Array.from({ length: 40 }, () => create({ project: "main/q" })));
    const good = answers.filter((answer) => answer.status === 200);
    expect(good).toHaveLength(10);
    expect(answers.filter((answer) => reasonOf(answer) === "QUOTA_EXCEEDED")).toHaveLength(30);
    for (const answer of good) await call("SandboxService/StopSandbox", { sandboxId: answer.json.sandbox.sandboxId });
    const again = await create({ project: "main/q" });
    expect(again.status, again.body.toString()).toBe(200);
    await call("SandboxService/StopSandbox", { sandboxId: again.json.sandbox.sandboxId });
  });

  test("a retry finds the sandbox, also after the edge was killed and started again", async () => {
    const createKey = "real-retry-1";
    const first = (await create({ createKey })).json.sandbox.sandboxId;
    expect((await create({ createKey, retry: true })).json.sandbox.sandboxId).toBe(first);
    await node.killEdge();
    expect(reasonOf(await call("CommandService/Exec", { sandboxId: first, spec: { shell: "true" } }))).toBe(
      "EDGE_UNREACHABLE",
    );
    await node.startEdge();
    expect((await create({ createKey, retry: true })).json.sandbox.sandboxId).toBe(first);
    expect(await exec(first, "echo alive")).toEqual({ code: 0, out: "alive\n" });
    expect(reasonOf(await create({ createKey, retry: true, job: "x" }))).toBe("IDEMPOTENCY_MISMATCH");
    await call("SandboxService/StopSandbox", { sandboxId: first });
  });

  test("a layer goes once nothing uses it, with its content", async () => {
    expect((await call("LayerService/DeleteLayer", { name: "public/busybox" })).status).toBe(200);
    expect(reasonOf(await create())).toBe("LAYER_NOT_FOUND");
  });
});
