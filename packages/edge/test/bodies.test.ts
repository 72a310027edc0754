// Files and trees as plain bodies, and terminals, on the edge's side of the wire.
import { once } from "node:events";
import http from "node:http";
import { afterEach, beforeEach, expect, test } from "vitest";
import { WebSocket } from "ws";
import { joinParts } from "../src/wire/frames.ts";
import { FakeEdge, until } from "./support/fake-edge.ts";

let fake: FakeEdge;
let sandboxId: string;
beforeEach(async () => {
  fake = await FakeEdge.start();
  sandboxId = (await fake.create()).sandboxId;
});
afterEach(() => fake.stop());

const file = (path: string, more = "") => `/v1/sandboxes/${sandboxId}/file?path=${path}${more}`;
const reasonIn = (body: Buffer) => JSON.parse(body.toString()).details[0].debug.reason;

/** Keeps what is written, and answers as aether does. */
function takeUploads() {
  const seen = { frames: [] as Buffer[], whole: false, closed: false, path: "", mode: 0 };
  fake.node.handler = (peer, { call }) => {
    if (call.case !== "writeFile") return false;
    seen.path = Buffer.from(call.value.path).toString("latin1");
    seen.mode = call.value.mode;
    peer.socket.on("close", () => (seen.closed = true));
    return true;
  };
  fake.node.onContents = (peer, frame) => {
    if (frame.length > 0) return void seen.frames.push(Buffer.from(joinParts(frame.parts, frame.length)));
    seen.whole = true;
    peer.aether(2, { case: "done", value: {} });
  };
  return seen;
}

test("a body becomes frames and an empty one, with its path as bytes", async () => {
  const seen = takeUploads();
  const data = Buffer.alloc(5_242_881, 0xc3);
  const answer = await fake.client.http("PUT", file("/a%ff+b%20c", "&mode=4755"), data);
  expect([answer.status, answer.body.toString()]).toEqual([200, "{}"]);
  expect([seen.path, seen.mode, seen.whole]).toEqual(["/a\xff+b c", 0o4755, true]);
  expect(Buffer.compare(Buffer.concat(seen.frames), data)).toBe(0);
});

test("an empty body is a whole one", async () => {
  const seen = takeUploads();
  expect((await fake.client.http("PUT", file("/x"), "")).status).toBe(200);
  expect([seen.whole, seen.frames.length]).toEqual([true, 0]);
});

test("a body that breaks off is never said to be whole", async () => {
  const seen = takeUploads();
  await new Promise<void>((resolve) => {
    const headers = { "x-dsec-principal": fake.client.token, "content-length": 100 };
    const { socketPath } = fake.client;
    const req = http.request({ socketPath, method: "PUT", path: file("/x"), headers });
    req.on("error", () => resolve());
    req.write("part");
    void until(() => seen.frames.length > 0, "the first bytes").then(() => req.destroy());
  });
  await until(() => seen.closed, "the edge to let go");
  expect(seen.whole).toBe(false);
});

test("an error before the end reaches the caller who is still sending", async () => {
  fake.node.handler = (peer, { id, call }) => {
    if (call.case !== "writeFile") return false;
    peer.aether(id, { case: "error", value: { reason: "DISK_FULL", message: "no room" } });
    return true;
  };
  fake.node.onContents = () => {};
  const answer = await fake.client.http("PUT", file("/x"), Buffer.alloc(8 << 20));
  expect([answer.status, reasonIn(answer.body)]).toEqual([429, "DISK_FULL"]);
});

/** Reads are answered with a file that says it has `size` bytes and sends `data`. */
function serveFile(size: number, data: Buffer, last: "done" | "close" = "done") {
  fake.node.handler = (peer, { id, call }) => {
    if (call.case !== "readFile") return false;
    peer.aether(id, { case: "stat", value: { file: { sizeBytes: BigInt(size), mode: 0o640 } } });
    for (let at = 0; at < data.length; at += 65_536) {
      const piece = data.subarray(at, at + 65_536);
      const head = Buffer.alloc(8);
      head.writeUInt32BE(piece.length, 0);
      head[4] = 1;
      peer.socket.write(Buffer.concat([head, piece]));
    }
    if (last === "done") peer.aether(id, { case: "done", value: {} });
    else peer.socket.end();
    return true;
  };
}

test("a file comes with its size and mode; one of /proc without a size", async () => {
  const data = Buffer.alloc(3_000_001, 7);
  serveFile(data.length, data);
  const answer = await fake.client.http("GET", file("/x"));
  expect([answer.headers["content-length"], answer.headers["x-dsec-mode"]]).toEqual([String(data.length), "0640"]);
  expect(Buffer.compare(answer.body, data)).toBe(0);
  serveFile(0, Buffer.from("cpu 1"));
  expect((await fake.client.http("GET", file("/proc/stat"))).body.toString()).toBe("cpu 1");
  serveFile(0, Buffer.alloc(0));
  expect((await fake.client.http("GET", file("/empty"))).body.length).toBe(0);
});

test("a file that grows ends at its size; one that shrinks, or breaks off, is never taken for whole", async () => {
  serveFile(10, Buffer.alloc(100, 1));
  expect((await fake.client.http("GET", file("/x"))).body.length).toBe(10);
  serveFile(100, Buffer.alloc(10, 1));
  await expect(fake.client.http("GET", file("/x"))).rejects.toThrow();
  serveFile(100, Buffer.alloc(10, 1), "close");
  await expect(fake.client.http("GET", file("/x"))).rejects.toThrow();
});

test("queries that are none are refused", async () => {
  for (const path of [
    file(""),
    file("%00"),
    file("%2"),
    file("a".repeat(5000)),
    file("/x", "&offset=-1"),
    file("/x", "&length=1e3"),
  ]) {
    expect((await fake.client.http("GET", path)).status).toBe(400);
  }
  expect((await fake.client.http("PUT", file("/x", "&mode=9"), "x")).status).toBe(400);
  expect((await fake.client.http("PUT", file("/x", "&mode=77777"), "x")).status).toBe(400);
  expect((await fake.client.http("DELETE", file("/x"))).status).toBe(501);
  expect((await fake.client.http("GET", "/v1/nothing")).status).toBe(501);
  expect((await fake.client.http("POST", "/dsec.v1.NoService/X", "x")).status).toBe(501);
});

function open(path: string): WebSocket {
  return new WebSocket(`ws+unix://${fake.client.socketPath}:${path}`, {
    headers: { "x-dsec-principal": fake.client.token },
  });
}

test("a terminal carries output, input at its offset, sizes, and the end", async () => {
  let taken = 3;
  let inputs = "";
  let size = {};
  fake.node.handler = (peer, { id, call }, aether) => {
    if (call.case === "getCommand") peer.aether(id, { case: "command", value: { commandId: "t" } });
    else if (call.case === "attach") peer.output(1, 0, 0, Buffer.from("$ "));
    else if (call.case === "resize") {
      size = { rows: call.value.size?.rows, cols: call.value.size?.cols };
      peer.aether(id, { case: "done", value: {} });
    } else if (call.case === "input") {
      const from = Number(call.value.offset);
      const fresh = Buffer.from(call.value.data)
        .toString()
        .slice(Math.max(0, taken - from));
      if (from <= taken) {
        inputs += fresh;
        taken += fresh.length;
      }
      peer.aether(id, { case: "input", value: { acceptedBytes: BigInt(taken) } });
      if (inputs.endsWith("exit\n")) {
        const attached = [...aether.peers].find((p) => p !== peer);
        attached?.output(1, 2, 0, Buffer.from("bye"));
        attached?.aether(2, { case: "ended", value: { exitCode: 4 } });
      }
    } else return false;
    return true;
  };
  const ws = open(`/v1/sandboxes/${sandboxId}/terminal?command_id=t`);
  const output: string[] = [];
  const texts: unknown[] = [];
  ws.on("message", (data, binary) => (binary ? output.push(String(data)) : texts.push(JSON.parse(String(data)))));
  await once(ws, "open");
  ws.send(JSON.stringify({ resize: { rows: 40, cols: 100 } }));
  ws.send("nonsense");
  ws.send(Buffer.from("ls\n"));
  ws.send(Buffer.from("exit\n"));
  const [code] = await once(ws, "close");
  expect([output.join(""), inputs, size, code]).toEqual(["$ bye", "ls\nexit\n", { rows: 40, cols: 100 }, 1000]);
  expect(texts).toMatchObject([{ ended: { exitCode: 4 } }]);
});

test("a terminal says where output is no longer kept, and why it broke", async () => {
  fake.node.handler = (peer, { id, call }) => {
    if (call.case === "getCommand") peer.aether(id, { case: "command", value: {} });
    else if (call.case === "input") peer.aether(id, { case: "input", value: {} });
    else if (call.case === "attach") {
      peer.output(1, 500, 400, Buffer.from("x"));
      peer.aether(id, { case: "error", value: { reason: "SLOW_READER", message: "slow" } });
    } else return false;
    return true;
  };
  const ws = open(`/v1/sandboxes/${sandboxId}/terminal?command_id=t&stdout_offset=100`);
  const texts: unknown[] = [];
  ws.on("message", (data, binary) => binary || texts.push(JSON.parse(String(data))));
  const [code] = await once(ws, "close");
  expect(code).toBe(1011);
  expect(texts).toMatchObject([{ gap: { offset: "100", droppedBytes: "400" } }, { error: { reason: "SLOW_READER" } }]);
});

test("a terminal that cannot be is an ordinary answer", async () => {
  const answer = async (path: string, token = fake.client.token) => {
    const ws = new WebSocket(`ws+unix://${fake.client.socketPath}:${path}`, { headers: { "x-dsec-principal": token } });
    const [, res] = (await once(ws, "unexpected-response")) as [unknown, http.IncomingMessage];
    res.resume();
    return res.statusCode;
  };
  fake.node.handler = (peer, { id, call }) => {
    if (call.case !== "getCommand") return false;
    peer.aether(id, { case: "error", value: { reason: "COMMAND_NOT_FOUND", message: "no" } });
    return true;
  };
  expect(await answer(`/v1/sandboxes/${sandboxId}/terminal?command_id=t`)).toBe(404);
  expect(await answer(`/v1/sandboxes/${sandboxId}/terminal`)).toBe(400);
  expect(await answer("/v1/sandboxes/e1aaaaaaaaaaaaaaaaaaaa/terminal?command_id=t")).toBe(404);
  expect(await answer(`/v1/sandboxes/${sandboxId}/terminal?command_id=t`, "bad")).toBe(401);
  expect(await answer("/v1/elsewhere")).toBe(501);
});
