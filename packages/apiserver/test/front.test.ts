import { request as httpRequest } from "node:http";
import { connect, type Socket } from "node:net";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { FakeEdge } from "./support/fake-edge.ts";
import { importBase, infoOf, type Platform, reasonOf, rpc, send, startPlatform } from "./support/platform.ts";

let platform: Platform;
let edge: FakeEdge;
let sandboxId: string;
beforeAll(async () => {
  platform = await startPlatform();
  edge = platform.edges[0]!;
  await importBase(platform);
  const created = await rpc(platform.port, platform.key, "SandboxService/CreateSandbox", {
    container: { image: "debian" },
  });
  sandboxId = created.json.sandbox.sandboxId;
});
afterAll(() => platform[Symbol.asyncDispose]());

const json = { "content-type": "application/json" };
const until = async (what: () => boolean): Promise<void> => {
  while (!what()) await new Promise((resolve) => setTimeout(resolve, 5));
};

function rawSocket(text: string): Promise<{ socket: Socket; answer: Promise<string> }> {
  return new Promise((resolve) => {
    const socket = connect(platform.port, "127.0.0.1", () => {
      const chunks: Buffer[] = [];
      socket.on("data", (chunk: Buffer) => chunks.push(chunk));
      const answer = new Promise<string>((done) =>
        socket.on("close", () => done(Buffer.concat(chunks).toString("latin1"))),
      );
      socket.on("error", () => {});
      socket.write(text, "latin1");
      resolve({ socket, answer });
    });
  });
}

test("nothing but /healthz is served without a key", async () => {
  expect((await send(platform.port, "/healthz", { method: "GET" })).body.toString()).toBe("ok\n");
  for (const path of [
    "/",
    "/dsec.v1.IamService/WhoAmI",
    "/nothing",
    "/v1/layers",
    `/v1/sandboxes/${sandboxId}/file?path=x`,
  ]) {
    const answer = await send(platform.port, path, { headers: json, body: "{}" });
    expect([answer.status, reasonOf(answer)], path).toEqual([401, "UNAUTHENTICATED"]);
  }
  for (const authorization of ["Basic x", "Bearer", "Bearer ", "Bearer nope", platform.key]) {
    const answer = await send(platform.port, "/dsec.v1.IamService/WhoAmI", {
      headers: { ...json, authorization },
      body: "{}",
    });
    expect(reasonOf(answer)).toBe("UNAUTHENTICATED");
  }
  expect(
    (
      await send(platform.port, "/dsec.v1.IamService/WhoAmI", {
        headers: { ...json, authorization: `bearer ${platform.key}` },
        body: "{}",
      })
    ).status,
  ).toBe(200);
});

test("what is not there, or not what it should be, has its reason", async () => {
  const key = platform.key;
  const cases: [string, Parameters<typeof send>[2], string][] = [
    ["/dsec.v1.IamService/Nope", { key, headers: json, body: "{}" }, "NO_SUCH_METHOD"],
    ["/dsec.v1.EdgeService/Snapshot", { key, headers: json, body: "{}" }, "NO_SUCH_METHOD"],
    ["/constructor", { key, headers: json, body: "{}" }, "NO_SUCH_METHOD"],
    ["/v1/nope", { key, body: "{}" }, "NO_SUCH_METHOD"],
    ["/dsec.v1.IamService/WhoAmI", { key, method: "GET" }, "NO_SUCH_METHOD"],
    ["/dsec.v1.IamService/WhoAmI", { key, headers: { "content-type": "text/plain" }, body: "{}" }, "INVALID_ARGUMENT"],
    ["/dsec.v1.IamService/WhoAmI", { key, headers: json, body: "{" }, "INVALID_ARGUMENT"],
    ["/dsec.v1.IamService/ListProjects", { key, headers: json, body: '{"path": 7}' }, "INVALID_ARGUMENT"],
    ["/dsec.v1.IamService/ListProjects", { key, headers: json, body: '{"path": "a\\u0000b"}' }, "INVALID_ARGUMENT"],
    [
      "/dsec.v1.IamService/WhoAmI",
      { key, headers: { "content-type": "application/proto" }, body: Buffer.from([255, 255]) },
      "INVALID_ARGUMENT",
    ],
    [
      "/dsec.v1.IamService/WhoAmI",
      { key, headers: { ...json, "content-encoding": "br" }, body: "{}" },
      "NOT_SUPPORTED",
    ],
    [
      "/dsec.v1.IamService/WhoAmI",
      { key, headers: { ...json, "content-encoding": "gzip" }, body: "{}" },
      "INVALID_ARGUMENT",
    ],
    [
      "/dsec.v1.IamService/WhoAmI",
      { key, headers: { ...json, "content-encoding": "gzip" }, body: gzipSync(Buffer.alloc(64e6, 32)) },
      "TOO_LARGE",
    ],
    ["/dsec.v1.IamService/WhoAmI", { key, headers: json, body: Buffer.alloc(9e6, 32) }, "TOO_LARGE"],
    ["/dsec.v1.CommandService/Exec", { key, headers: json, body: "{}" }, "INVALID_ARGUMENT"],
    ["/dsec.v1.CommandService/Exec", { key, headers: json, body: "[" }, "INVALID_ARGUMENT"],
    ["/dsec.v1.CommandService/Exec", { key, headers: json, body: Buffer.alloc(5e6, 32) }, "TOO_LARGE"],
    ["/dsec.v1.CommandService/Exec", { key, headers: json, body: '{"sandboxId":"x\\u0000"}' }, "SANDBOX_NOT_FOUND"],
    [
      "/dsec.v1.CommandService/Exec",
      { key, headers: json, body: `{"sandboxId":"zz${"a".repeat(20)}"}` },
      "EDGE_NOT_FOUND",
    ],
    [
      "/dsec.v1.CommandService/Exec",
      { key, headers: { ...json, "x-dsec-sandbox": "../../run/x" }, body: "{}" },
      "SANDBOX_NOT_FOUND",
    ],
    ["/v1/sandboxes/..%2f..%2fx/file", { key, method: "GET" }, "SANDBOX_NOT_FOUND"],
  ];
  for (const [path, sent, reason] of cases)
    expect(reasonOf(await send(platform.port, path, sent)), `${path} ${JSON.stringify(sent).slice(0, 99)}`).toBe(
      reason,
    );
  const gzipped = await send(platform.port, "/dsec.v1.IamService/WhoAmI", {
    key,
    headers: { ...json, "content-encoding": "gzip" },
    body: gzipSync("{}"),
  });
  expect(gzipped.json.key.role).toBe("ROLE_ADMIN");
});

test("heads that are too large, cut or no HTTP get an answer and the server goes on", async () => {
  const large = await rawSocket(`GET /healthz HTTP/1.1\r\nhost: x\r\nx: ${"a".repeat(70_000)}\r\n\r\n`);
  const answer = await large.answer;
  expect(answer).toMatch(/^HTTP\/1\.1 431 /);
  expect(answer).toContain("resource_exhausted");
  expect(await (await rawSocket("nonsense\r\n\r\n")).answer).toMatch(/^HTTP\/1\.1 400 /);
  expect(
    await (
      await rawSocket("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n")
    ).answer,
  ).toMatch(/^HTTP\/1\.1 400 /);
  const cut = await rawSocket(
    `POST /dsec.v1.IamService/WhoAmI HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${platform.key}\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{`,
  );
  cut.socket.destroy();
  expect((await send(platform.port, "/healthz", { method: "GET" })).status).toBe(200);
});

test("every answer carries the request's ID, and a bad one is replaced", async () => {
  const given = await send(platform.port, "/dsec.v1.IamService/WhoAmI", {
    key: platform.key,
    headers: { ...json, "x-request-id": "abc-1" },
    body: "{}",
  });
  expect(given.headers["x-request-id"]).toBe("abc-1");
  const passed = await send(platform.port, "/dsec.v1.CommandService/Exec", {
    key: platform.key,
    headers: { ...json, "x-request-id": "abc-2" },
    body: JSON.stringify({ sandboxId }),
  });
  expect(passed.headers["x-request-id"]).toBe("abc-2");
  const bad = await send(platform.port, "/nope", { headers: { "x-request-id": "a b" } });
  expect(bad.headers["x-request-id"]).toMatch(/^[a-z2-7]{16}$/);
});

test("bodies go both ways whole, in chunks and by length", async () => {
  const size = 20_000_003;
  const down = await send(platform.port, `/v1/sandboxes/${sandboxId}/file?path=x&length=${size}`, {
    method: "GET",
    key: platform.key,
  });
  expect(down.body.length).toBe(size);
  expect(down.body.every((byte) => byte === 7)).toBe(true);
  const before = edge.uploaded;
  await send(platform.port, `/v1/sandboxes/${sandboxId}/file?path=x`, {
    method: "PUT",
    key: platform.key,
    body: Buffer.alloc(size),
    headers: { "content-length": String(size) },
  });
  await send(platform.port, `/v1/sandboxes/${sandboxId}/file?path=x`, {
    method: "PUT",
    key: platform.key,
    body: Buffer.alloc(size),
    headers: { "transfer-encoding": "chunked" },
  });
  await send(platform.port, `/v1/sandboxes/${sandboxId}/file?path=x`, { method: "PUT", key: platform.key });
  expect(edge.uploaded - before).toBe(2 * size);
});

test("an answer that comes before the end of a large body is not lost", async () => {
  const body = Buffer.alloc(40_000_000);
  const headers = { "content-length": String(body.length) };
  const path = `/v1/sandboxes/${sandboxId}/file?path=/refused`;
  const refused = await send(platform.port, path, { method: "PUT", key: platform.key, body, headers });
  expect([refused.status, refused.json]).toEqual([409, { early: true }]);
  expect(reasonOf(await send(platform.port, path, { method: "PUT", key: "nobody's", body, headers }))).toBe(
    "UNAUTHENTICATED",
  );
  const import_ = await send(platform.port, "/v1/layers?kind=base&name=x&format=zip", {
    key: platform.key,
    body,
    headers,
  });
  expect(reasonOf(import_)).toBe("INVALID_ARGUMENT");
});

test("an answer that breaks off on the edge breaks off for the caller", async () => {
  await expect(
    send(platform.port, `/v1/sandboxes/${sandboxId}/file?path=/cut&length=100000`, {
      method: "GET",
      key: platform.key,
    }),
  ).rejects.toThrow(/aborted|hang up|ECONNRESET/);
});

test("a caller that leaves ends the call on the edge", async () => {
  const open = edge.streamsOpen;
  const request = httpRequest({
    port: platform.port,
    path: `/v1/sandboxes/${sandboxId}/file?path=/endless&length=10`,
    headers: { authorization: `Bearer ${platform.key}` },
    agent: false,
  });
  request.on("error", () => {});
  request.end();
  await until(() => edge.streamsOpen === open + 1);
  request.destroy();
  await until(() => edge.streamsOpen === open);
});

test("kept connections serve call after call, with bodies of every kind between them", async () => {
  const agent = new (await import("node:http")).Agent({ keepAlive: true, maxSockets: 1 });
  for (let i = 0; i < 30; i++) {
    const length = [0, 1, 65_536, 300_000][i % 4] as number;
    const got = await new Promise<number>((resolve, reject) => {
      const path = `/v1/sandboxes/${sandboxId}/file?path=x&length=${length}`;
      httpRequest(
        { port: platform.port, path, agent, headers: { authorization: `Bearer ${platform.key}` } },
        (answer) => {
          let size = 0;
          answer.on("data", (chunk: Buffer) => {
            size += chunk.length;
          });
          answer.on("end", () => resolve(size));
        },
      )
        .on("error", reject)
        .end();
    });
    expect(got).toBe(length);
    const exec = await rpc(platform.port, platform.key, "CommandService/Exec", {
      sandboxId,
      spec: { shell: "x".repeat(length) },
    });
    expect(Buffer.from(exec.json.result.stdout.data ?? "", "base64").length).toBe(length);
  }
  agent.destroy();
});

test("a caller of HTTP/1.0 gets bytes, not chunks", async () => {
  const { answer } = await rawSocket(
    `GET /v1/sandboxes/${sandboxId}/file?path=x&length=5 HTTP/1.0\r\nauthorization: Bearer ${platform.key}\r\n\r\n`,
  );
  expect((await answer).split("\r\n\r\n")[1]).toBe("\x07".repeat(5));
});

test("an upgrade is passed on both ways, and a refused one is an answer", async () => {
  const head = (path: string, key: string) =>
    `GET ${path} HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: abc\r\nauthorization: Bearer ${key}\r\n\r\n`;
  const { socket, answer } = await rawSocket(
    `${head(`/v1/sandboxes/${sandboxId}/terminal?command_id=c`, platform.key)}early`,
  );
  let seen = "";
  socket.on("data", (chunk: Buffer) => {
    seen += chunk.toString("latin1");
  });
  await until(() => seen.endsWith("early"));
  socket.write("late");
  await until(() => seen.endsWith("earlylate"));
  const upgradeHead = edge.heads.find((h) => h["sec-websocket-key"] === "abc");
  expect(upgradeHead).toMatchObject({ upgrade: "websocket", "x-request-id": expect.any(String) });
  expect(upgradeHead?.authorization).toBeUndefined();
  socket.destroy();
  await answer;
  expect(await (await rawSocket(head(`/v1/sandboxes/${sandboxId}/nope`, platform.key))).answer).toMatch(
    /^HTTP\/1\.1 404 /,
  );
  expect(await (await rawSocket(head(`/v1/sandboxes/${sandboxId}/terminal`, "bad"))).answer).toMatch(
    /^HTTP\/1\.1 401 /,
  );
  expect(await (await rawSocket(head("/dsec.v1.IamService/WhoAmI", platform.key))).answer).toContain("unimplemented");
});

test("an edge that is away is EDGE_UNREACHABLE, for streams in their last message; when it is back all goes on", async () => {
  const other = await startPlatform();
  const id = `ea${"a".repeat(20)}`;
  await other.edges[0]!.stop();
  const unary = await rpc(other.port, other.key, "CommandService/Exec", { sandboxId: id });
  expect(unary.status).toBe(503);
  expect(infoOf(unary)).toMatchObject({ reason: "EDGE_UNREACHABLE", retryable: true, metadata: { edge: "ea" } });
  const message = Buffer.from(JSON.stringify({ sandboxId: id }));
  const envelope = Buffer.concat([Buffer.from([0, 0, 0, 0, message.length]), message]);
  const stream = await send(other.port, "/dsec.v1.CommandService/Stream", {
    key: other.key,
    headers: { "content-type": "application/connect+json" },
    body: envelope,
  });
  expect([stream.status, stream.headers["content-type"], stream.body[0]]).toEqual([200, "application/connect+json", 2]);
  expect(stream.body.readUInt32BE(1)).toBe(stream.body.length - 5);
  expect(JSON.parse(stream.body.subarray(5).toString()).error).toMatchObject({
    code: "unavailable",
    details: [{ type: "dsec.v1.ErrorInfo" }],
  });
  await other.edges[0]!.start();
  expect(reasonOf(await rpc(other.port, other.key, "CommandService/Exec", { sandboxId: id }))).toBe(
    "SANDBOX_NOT_FOUND",
  );
  await other[Symbol.asyncDispose]();
});
