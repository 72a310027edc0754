// Output on its way through the edge: every byte, in order, at its offset; slow readers; those who leave.
import { createHash } from "node:crypto";
import http from "node:http";
import { create, toBinary } from "@bufbuild/protobuf";
import { OutputStream, StreamRequestSchema } from "@dsec/api";
import { afterEach, beforeEach, expect, test } from "vitest";
import { errorOf, reasonOf } from "./support/client.ts";
import { FakeEdge, until } from "./support/fake-edge.ts";

let fake: FakeEdge;
let sandboxId: string;
beforeEach(async () => {
  fake = await FakeEdge.start();
  sandboxId = (await fake.create()).sandboxId;
});
afterEach(() => fake.stop());

const shell = (value: string) => ({ what: { case: "shell" as const, value } });
const total = 24 * 1024 * 1024 + 7;
const bytes = Buffer.alloc(total);
for (let i = 0; i < total; i += 4) bytes.writeUInt32LE(Math.imul(i, 2654435761) >>> 0, Math.min(i, total - 4));
const sum = (data: Uint8Array) => createHash("sha256").update(data).digest("hex");

/** Attached commands get `bytes` from their offset, in pieces of odd sizes, as fast as the edge takes them. */
function serveBytes(size = 200_003): { sent: number; closed: boolean } {
  const seen = { sent: 0, closed: false };
  fake.node.handler = (peer, { id, call }) => {
    const attach = call.case === "attach" || (call.case === "start" && call.value.attach);
    if (!attach) return false;
    let at = call.case === "attach" ? Number(call.value.stdoutOffset) : 0;
    peer.aether(id, { case: "command", value: { commandId: "c" } });
    peer.socket.on("close", () => (seen.closed = true));
    const go = () => {
      while (at < total && !peer.socket.destroyed) {
        const piece = bytes.subarray(at, at + size);
        peer.output(1, at, 0, piece);
        at += piece.length;
        seen.sent = at;
        if (peer.socket.writableNeedDrain) return void peer.socket.once("drain", go);
      }
      peer.aether(id, { case: "ended", value: { exitCode: 3, stdoutBytes: BigInt(total) } });
    };
    go();
    return true;
  };
  return seen;
}

async function readAll(from = 0): Promise<{ data: Buffer; exitCode: number | undefined }> {
  const parts: Uint8Array[] = [];
  let next = from;
  let exitCode: number | undefined;
  for await (const { event } of fake.client.commands.stream({
    sandboxId,
    commandId: "c",
    stdoutOffset: BigInt(from),
  })) {
    if (event.case === "output") {
      expect([event.value.stream, Number(event.value.offset)]).toEqual([OutputStream.STDOUT, next]);
      next += event.value.data.length;
      parts.push(event.value.data);
    } else if (event.case === "ended") exitCode = event.value.exitCode;
  }
  return { data: Buffer.concat(parts), exitCode };
}

test("a stream carries every byte, from the start and from an offset", async () => {
  serveBytes();
  const whole = await readAll();
  expect([sum(whole.data), whole.exitCode]).toEqual([sum(bytes), 3]);
  expect(sum((await readAll(1_000_001)).data)).toBe(sum(bytes.subarray(1_000_001)));
});

test("tiny frames, and frames of the largest size", async () => {
  serveBytes(1024 * 1024);
  expect(sum((await readAll()).data)).toBe(sum(bytes));
  serveBytes(37);
  expect(sum((await readAll(total - 100_000)).data)).toBe(sum(bytes.subarray(total - 100_000)));
});

test("three readers, one dropped: the others have every byte", async () => {
  serveBytes();
  for (let round = 0; round < 3; round++) {
    const leave = new AbortController();
    const dropped = (async () => {
      for await (const _ of fake.client.commands.stream({ sandboxId, commandId: "c" }, { signal: leave.signal }))
        leave.abort();
    })().catch(() => {});
    const [a, b] = await Promise.all([readAll(), readAll(), dropped]);
    expect([sum(a.data), sum(b.data)]).toEqual([sum(bytes), sum(bytes)]);
  }
});

test("the plain body has the same bytes", async () => {
  serveBytes();
  const path = `/v1/sandboxes/${sandboxId}/commands/c/stdout?offset=5&follow=1`;
  const answer = await fake.client.http("GET", path);
  expect([answer.status, sum(answer.body)]).toEqual([200, sum(bytes.subarray(5))]);
  expect(answer.trailers["x-dsec-dropped"]).toBe("0");
});

test("a plain body says what is no longer kept", async () => {
  fake.node.handler = (peer, { id, call }) => {
    if (call.case !== "attach") return false;
    peer.output(1, 1000, 995, Buffer.from("kept"));
    peer.aether(id, { case: "done", value: {} });
    return true;
  };
  const answer = await fake.client.http("GET", `/v1/sandboxes/${sandboxId}/commands/c/stdout?offset=5`);
  expect([answer.headers["x-dsec-dropped"], answer.body.toString()]).toEqual(["995", "kept"]);
});

test("JSON callers read the stream too", async () => {
  const body = Buffer.from(JSON.stringify({ sandboxId, spec: { shell: "x" } }));
  const head = Buffer.alloc(5);
  head.writeUInt32BE(body.length, 1);
  const answer = await fake.client.http("POST", "/dsec.v1.CommandService/Stream", Buffer.concat([head, body]), {
    "content-type": "application/connect+json",
  });
  const messages = [];
  for (let at = 0; at < answer.body.length; ) {
    const length = answer.body.readUInt32BE(at + 1);
    messages.push([answer.body[at], JSON.parse(answer.body.toString("utf8", at + 5, at + 5 + length))]);
    at += 5 + length;
  }
  expect(messages).toMatchObject([
    [0, { started: {} }],
    [0, { output: { stream: "OUTPUT_STREAM_STDOUT", data: Buffer.from("hello\n").toString("base64") } }],
    [0, { ended: { exitCode: 0 } }],
    [2, {}],
  ]);
});

test("a reader that takes nothing holds the source back, not memory", async () => {
  const seen = serveBytes();
  const body = toBinary(StreamRequestSchema, create(StreamRequestSchema, { sandboxId, commandId: "c" }));
  const head = Buffer.alloc(5);
  head.writeUInt32BE(body.length, 1);
  const response = await new Promise<http.IncomingMessage>((resolve, reject) => {
    const headers = { "content-type": "application/connect+proto", "x-dsec-principal": fake.client.token };
    const { socketPath } = fake.client;
    const req = http.request({ socketPath, method: "POST", path: "/dsec.v1.CommandService/Stream", headers }, resolve);
    req.on("error", reject);
    req.end(Buffer.concat([head, body]));
  });
  response.on("error", () => {});
  await until(() => seen.sent > 0, "the first bytes");
  await new Promise((resolve) => setTimeout(resolve, 500));
  expect(seen.sent).toBeLessThan(total / 2);
  response.destroy();
  await until(() => seen.closed, "the edge to let go");
});

test("errors of a stream come as its end", async () => {
  const read = async (request: object) => {
    for await (const _ of fake.client.commands.stream(request)) {
    }
  };
  expect(await reasonOf(read({ sandboxId: "e1aaaaaaaaaaaaaaaaaaaa", commandId: "c" }))).toBe("SANDBOX_NOT_FOUND");
  expect(await reasonOf(read({ sandboxId, spec: shell("  ") }))).toBe("EMPTY_COMMAND");
  expect(await reasonOf(read({ sandboxId, commandId: "a b" }))).toBe("INVALID_ARGUMENT");
  fake.node.handler = (peer, { id, call }) => {
    if (call.case !== "attach") return false;
    peer.aether(id, { case: "error", value: { reason: "COMMAND_NOT_FOUND", message: "no" } });
    return true;
  };
  expect(await reasonOf(read({ sandboxId, commandId: "c" }))).toBe("COMMAND_NOT_FOUND");
});

test("a stream's time may end; the command is only let go", async () => {
  fake.node.handler = (_peer, { call }) => call.case === "start";
  const read = async () => {
    for await (const _ of fake.client.commands.stream({ sandboxId, spec: shell("x") }, { timeoutMs: 200 })) {
    }
  };
  expect(await reasonOf(read())).toBe("DEADLINE_EXCEEDED");
  expect(fake.node.aethers.get(sandboxId)?.requests.some((r) => r.call.case === "signal")).toBe(false);
});

test("collected output keeps head and tail", async () => {
  serveBytes();
  const { result } = await fake.client.commands.exec({
    sandboxId,
    spec: { ...shell("x"), outputCapBytes: 1_000_000n },
  });
  const data = Buffer.from(result?.stdout?.data ?? []);
  expect(sum(data)).toBe(sum(Buffer.concat([bytes.subarray(0, 500_000), bytes.subarray(total - 500_000)])));
  expect([result?.stdout?.droppedBytes, result?.stdout?.gapAt]).toEqual([BigInt(total - 1_000_000), 500_000n]);
});

test("a sandbox that ends under a call says why", async () => {
  fake.node.handler = (_peer, { call }) => call.case === "start";
  const call = errorOf(fake.client.commands.exec({ sandboxId, spec: shell("x") }));
  await until(
    () => fake.node.aethers.get(sandboxId)?.requests.some((r) => r.call.case === "start") ?? false,
    "the start",
  );
  await fake.client.sandboxes.stopSandbox({ sandboxId });
  const error = await call;
  expect([error.reason, error.metadata.end_reason]).toEqual(["SANDBOX_ENDED", "STOPPED"]);
});

test("commands that are none are refused", async () => {
  const exec = (spec: object, commandId = "") => reasonOf(fake.client.commands.exec({ sandboxId, commandId, spec }));
  expect(await exec(shell(""))).toBe("EMPTY_COMMAND");
  expect(await exec({})).toBe("EMPTY_COMMAND");
  expect(await exec({ what: { case: "argv", value: { args: [] } } })).toBe("EMPTY_COMMAND");
  expect(await exec({ what: { case: "argv", value: { args: [Buffer.from(" ")] } } })).toBe("EMPTY_COMMAND");
  expect(await exec({ what: { case: "argv", value: { args: [Buffer.from("a\0b")] } } })).toBe("INVALID_ARGUMENT");
  expect(await exec(shell("x"), "no/slash")).toBe("INVALID_ARGUMENT");
  expect(await exec({ ...shell("x"), pty: { rows: 0, cols: 80 } })).toBe("INVALID_ARGUMENT");
  expect(await exec({ ...shell("x"), outputCapBytes: 1n << 40n })).toBe("INVALID_ARGUMENT");
  expect(await exec({ ...shell("x"), stdin: Buffer.alloc(1024 * 1024 + 1) })).toBe("TOO_LARGE");
  expect(await reasonOf(fake.client.commands.signal({ sandboxId, commandId: "c", signal: "SIGNOPE" }))).toBe(
    "INVALID_ARGUMENT",
  );
});
