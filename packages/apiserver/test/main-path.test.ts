import { afterAll, beforeAll, expect, test } from "vitest";
import { importBase, type Platform, reasonOf, rpc, send, startPlatform } from "./support/platform.ts";

let platform: Platform;
beforeAll(async () => {
  platform = await startPlatform();
  await importBase(platform);
});
afterAll(() => platform[Symbol.asyncDispose]());

const container = { image: "debian" };

test("create → placement → the edge, then a command that is passed on", async () => {
  const created = await rpc(platform.port, platform.key, "SandboxService/CreateSandbox", {
    container,
    createKey: "main-path-1",
  });
  expect(created.status, created.body.toString()).toBe(200);
  const { sandboxId, project, layers } = created.json.sandbox;
  expect(project).toBe("main");
  expect(layers).toEqual([{ kind: "base", digest: platform.edges[0]?.layerDigest, name: "main/debian@v1" }]);
  const spec = { shell: "echo" };
  const ran = await rpc(platform.port, platform.key, "CommandService/Exec", { sandboxId, spec });
  expect(ran.status, ran.body.toString()).toBe(200);
  expect(Buffer.from(ran.json.result.stdout.data, "base64").toString()).toBe("echo");
  const stopped = await rpc(platform.port, platform.key, "SandboxService/StopSandbox", { sandboxId });
  expect(stopped.json.sandbox.state).toBe("SANDBOX_STATE_STOPPED");
  const gone = await rpc(platform.port, platform.key, "CommandService/Exec", { sandboxId, spec });
  expect(reasonOf(gone)).toBe("SANDBOX_NOT_FOUND");
});

test("the edge gets a signed principal and none of the caller's own claims", async () => {
  const edge = platform.edges[0];
  const before = edge?.heads.length ?? 0;
  const id = `ea${"a".repeat(20)}`;
  await send(platform.port, `/v1/sandboxes/${id}/file?path=x&length=3`, {
    method: "GET",
    key: platform.key,
    headers: {
      "x-dsec-principal": "forged",
      cookie: "a=b",
      "x-request-id": "my-id",
      connection: "keep-alive, x-hop",
      "x-hop": "1",
      "x-mine": "2",
    },
  });
  const head = edge?.heads.slice(before).find((h) => h["x-mine"] !== undefined);
  expect(head).toBeDefined();
  expect(head?.authorization).toBeUndefined();
  expect(head?.cookie).toBeUndefined();
  expect(head?.["x-hop"]).toBeUndefined();
  expect(head?.["x-request-id"]).toBe("my-id");
  expect(edge?.principals.at(-1)).toMatchObject({ project: "main", role: "admin" });
});
