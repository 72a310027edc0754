import { request as httpRequest } from "node:http";
import { connect } from "node:net";
import { afterAll, beforeAll, expect, test } from "vitest";
import { importBase, type Platform, reasonOf, rpc, send, startPlatform } from "./support/platform.ts";

let platform: Platform;
beforeAll(async () => {
  platform = await startPlatform({ edges: ["ea", "eb"] });
  await importBase(platform);
  for (const path of ["main/a", "main/a/b", "main/c"]) await as(platform.key, "IamService/CreateProject", { path });
});
afterAll(() => platform[Symbol.asyncDispose]());

const as = (key: string, method: string, message: object = {}) => rpc(platform.port, key, method, message);
async function newKey(project: string, role: string, by = platform.key): Promise<{ keyId: string; secret: string }> {
  const answer = await as(by, "IamService/CreateKey", { project, role: `ROLE_${role}`, name: "test" });
  expect(answer.status, answer.body.toString()).toBe(200);
  return { keyId: answer.json.key.keyId, secret: answer.json.secret };
}
const create = (key: string, more: object = {}) =>
  as(key, "SandboxService/CreateSandbox", { container: { image: "debian" }, ...more });

test("a key acts at and below its project, with its role, and grants no more than it holds", async () => {
  const admin = await newKey("main/a", "ADMIN");
  const viewer = await newKey("main/a", "VIEWER", admin.secret);
  const developer = await newKey("main/a/b", "DEVELOPER", admin.secret);
  expect((await as(viewer.secret, "IamService/WhoAmI")).json.key).toMatchObject({
    keyId: viewer.keyId,
    project: "main/a",
    role: "ROLE_VIEWER",
  });
  expect(reasonOf(await create(viewer.secret))).toBe("PERMISSION_DENIED");
  expect((await create(developer.secret)).json.sandbox.project).toBe("main/a/b");
  expect((await create(admin.secret, { project: "main/a/b" })).json.sandbox.project).toBe("main/a/b");
  for (const project of ["main", "main/c", "main/ab", "public"])
    expect(reasonOf(await create(admin.secret, { project }))).toBe("PROJECT_NOT_FOUND");
  expect(reasonOf(await as(developer.secret, "IamService/CreateKey", { role: "ROLE_VIEWER" }))).toBe(
    "PERMISSION_DENIED",
  );
  expect(reasonOf(await as(admin.secret, "IamService/CreateKey", { project: "main", role: "ROLE_VIEWER" }))).toBe(
    "PROJECT_NOT_FOUND",
  );
  expect(reasonOf(await as(admin.secret, "IamService/CreateKey", { role: "ROLE_UNSPECIFIED" }))).toBe(
    "INVALID_ARGUMENT",
  );
  expect(reasonOf(await as(admin.secret, "IamService/SetQuota", { path: "main/a", quota: {} }))).toBe(
    "PERMISSION_DENIED",
  );
  expect(
    (await as(admin.secret, "IamService/SetQuota", { path: "main/a/b", quota: { cpuCores: 0.5 } })).json.project.quota,
  ).toEqual({ cpuCores: 0.5 });
  expect(reasonOf(await as(admin.secret, "IamService/DeleteProject", { path: "main/c" }))).toBe("PROJECT_NOT_FOUND");
  expect(reasonOf(await as(admin.secret, "IamService/DeleteProject", { path: "main/a/b" }))).toBe("PROJECT_IN_USE");
  expect(
    reasonOf(await as(admin.secret, "IamService/RevokeKey", { keyId: (await newKey("main/c", "VIEWER")).keyId })),
  ).toBe("KEY_NOT_FOUND");
  const listed = (await as(admin.secret, "IamService/ListKeys")).json.keys.map(
    (key: { project: string }) => key.project,
  );
  expect(new Set(listed)).toEqual(new Set(["main/a", "main/a/b"]));
  const projects = (await as(admin.secret, "IamService/ListProjects")).json.projects;
  expect(projects.map((p: { path: string }) => p.path)).toEqual(["main/a", "main/a/b"]);
  expect(projects[0].used).toMatchObject({ sandboxes: 2, cpuCores: 0.04, memoryMb: "64" });
  expect(JSON.stringify((await as(admin.secret, "IamService/ListKeys")).json)).not.toContain("dsec_");
});

test("only the root's keys write to public/, and everyone reads it", async () => {
  const builder = await newKey("main/a", "BUILDER");
  const path = "/v1/layers?kind=toolkit&name=tools&format=tar&project=";
  expect(reasonOf(await send(platform.port, `${path}public`, { key: builder.secret, body: "x" }))).toBe(
    "PROJECT_NOT_FOUND",
  );
  expect((await send(platform.port, `${path}public`, { key: platform.key, body: "x" })).json.layer.name).toBe(
    "public/tools",
  );
  expect((await send(platform.port, `${path}main/a`, { key: builder.secret, body: "x" })).json.layer.name).toBe(
    "main/a/tools",
  );
  const developer = await newKey("main/c", "DEVELOPER");
  expect(reasonOf(await send(platform.port, `${path}main/c`, { key: developer.secret, body: "x" }))).toBe(
    "PERMISSION_DENIED",
  );
  const names = (await as(developer.secret, "LayerService/ListLayers")).json.layers.map(
    (layer: { name: string }) => layer.name,
  );
  expect(names).toEqual(["main/debian", "public/tools"]);
  expect((await as(developer.secret, "LayerService/GetLayer", { name: "tools" })).json.layer.name).toBe("public/tools");
  expect(reasonOf(await as(builder.secret, "LayerService/DeleteLayer", { name: "public/tools" }))).toBe(
    "PERMISSION_DENIED",
  );
  expect(reasonOf(await as(developer.secret, "LayerService/GetLayer", { name: "main/a/tools" }))).toBe(
    "LAYER_NOT_FOUND",
  );
});

test("imports: versions, bad queries, a cut body", async () => {
  const put = (query: string, body: string | Buffer = "x") =>
    send(platform.port, `/v1/layers?${query}`, { key: platform.key, body });
  const edges = platform.edges;
  for (const edge of edges) edge.layerDigest = `sha256:${"b".repeat(64)}`;
  expect((await put("kind=base&name=vers&format=tar")).json).toMatchObject({
    layer: { name: "main/vers", version: 1, kind: "LAYER_KIND_BASE" },
  });
  expect((await put("kind=base&name=vers&format=tar")).json).toMatchObject({ layer: { version: 1 }, existed: true });
  for (const edge of edges) edge.layerDigest = `sha256:${"c".repeat(64)}`;
  expect((await put("kind=base&name=vers&format=tar")).json.layer.version).toBe(2);
  expect(reasonOf(await put("kind=toolkit&name=vers&format=tar"))).toBe("LAYER_KIND_MISMATCH");
  for (const bad of [
    "kind=base&format=tar",
    "kind=base&name=a%00b&format=tar",
    "name=x&format=tar",
    "kind=base&name=x",
    "kind=base&name=x&format=zip",
    "kind=base&name=a/b&format=tar",
    "kind=base&name=a%0Ab&format=tar",
  ]) {
    expect(reasonOf(await put(bad)), bad).toBe("INVALID_ARGUMENT");
  }
  expect(reasonOf(await send(platform.port, "/v1/layers", { key: platform.key, method: "GET" }))).toBe(
    "NO_SUCH_METHOD",
  );
  const socket = connect(platform.port, "127.0.0.1");
  socket.write(
    `POST /v1/layers?kind=base&name=cut&format=tar HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${platform.key}\r\ncontent-length: 1000\r\n\r\nabc`,
  );
  await new Promise((resolve) => setTimeout(resolve, 100));
  socket.destroy();
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect(reasonOf(await as(platform.key, "LayerService/GetLayer", { name: "cut" }))).toBe("LAYER_NOT_FOUND");
});

test("a layer that a sandbox uses stays; once it is free its content is dropped everywhere", async () => {
  for (const edge of platform.edges) edge.layerDigest = `sha256:${"d".repeat(64)}`;
  await send(platform.port, "/v1/layers?kind=base&name=used&format=tar", { key: platform.key, body: "x" });
  const { sandboxId } = (await create(platform.key, { container: { image: "used" } })).json.sandbox;
  const refused = await as(platform.key, "LayerService/DeleteLayer", { name: "used" });
  expect(reasonOf(refused)).toBe("LAYER_IN_USE");
  expect(refused.json.message).toContain(sandboxId);
  await as(platform.key, "SandboxService/StopSandbox", { sandboxId });
  expect((await as(platform.key, "LayerService/DeleteLayer", { name: "used" })).status).toBe(200);
  for (const edge of platform.edges) expect(edge.dropped.at(-1)).toEqual([`sha256:${"d".repeat(64)}`]);
  expect(reasonOf(await as(platform.key, "LayerService/GetLayer", { name: "used" }))).toBe("LAYER_NOT_FOUND");
});

test("lists are merged by ID in pages, and edges that are away are named", async () => {
  const key = await newKey("main/c", "DEVELOPER");
  const ids: string[] = [];
  for (let i = 0; i < 13; i++) ids.push((await create(key.secret)).json.sandbox.sandboxId);
  ids.sort();
  expect(new Set(ids.map((id) => id.slice(0, 2))).size).toBe(2);
  const listed: string[] = [];
  let pageToken = "";
  do {
    const page = (await as(key.secret, "SandboxService/ListSandboxes", { pageSize: 3, pageToken })).json;
    expect(page.sandboxes.length).toBeLessThanOrEqual(3);
    listed.push(...page.sandboxes.map((s: { sandboxId: string }) => s.sandboxId));
    pageToken = page.nextPageToken ?? "";
  } while (pageToken !== "");
  expect(listed).toEqual(ids);
  expect(reasonOf(await as(key.secret, "SandboxService/ListSandboxes", { project: "main" }))).toBe("PROJECT_NOT_FOUND");
  await platform.edges[1]!.stop();
  const partial = (await as(key.secret, "SandboxService/ListSandboxes")).json;
  expect(partial.unreachableEdges).toEqual(["eb"]);
  expect(partial.sandboxes.map((s: { sandboxId: string }) => s.sandboxId)).toEqual(
    ids.filter((id) => id.startsWith("ea")),
  );
  await platform.edges[1]!.start();
});

test("a revoked key's calls end, streams and terminals too, and others go on", async () => {
  const [gone, stays] = [await newKey("main/c", "DEVELOPER"), await newKey("main/c", "DEVELOPER")];
  const id = `ea${"a".repeat(20)}`;
  const open = (secret: string) =>
    new Promise<{ ended: Promise<void>; isOpen: () => boolean; close: () => void }>((resolve, reject) => {
      const path = `/v1/sandboxes/${id}/file?path=/endless&length=10`;
      const request = httpRequest(
        { port: platform.port, path, headers: { authorization: `Bearer ${secret}` }, agent: false },
        (answer) => {
          let over = false;
          answer.on("error", () => {});
          answer.resume();
          const ended = new Promise<void>((done) => {
            answer.on("close", () => {
              over = true;
              done();
            });
          });
          resolve({ ended, isOpen: () => !over, close: () => request.destroy() });
        },
      );
      request.on("error", reject);
      request.end();
    });
  const [cut, kept] = [await open(gone.secret), await open(stays.secret)];
  const terminal = connect(platform.port, "127.0.0.1");
  const terminalEnded = new Promise((resolve) => terminal.on("close", resolve));
  terminal.on("error", () => {});
  terminal.write(
    `GET /v1/sandboxes/${id}/terminal HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\nauthorization: Bearer ${gone.secret}\r\n\r\n`,
  );
  await new Promise((resolve) => terminal.once("data", resolve));
  expect((await as(platform.key, "IamService/RevokeKey", { keyId: gone.keyId })).status).toBe(200);
  await cut.ended;
  await terminalEnded;
  expect(kept.isOpen()).toBe(true);
  expect(reasonOf(await as(gone.secret, "IamService/WhoAmI"))).toBe("UNAUTHENTICATED");
  expect((await as(stays.secret, "IamService/WhoAmI")).status).toBe(200);
  kept.close();
});
