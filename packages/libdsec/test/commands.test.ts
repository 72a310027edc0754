import type { ConnectRouter } from "@connectrpc/connect";
import { CommandService, DsecError, FileService } from "@dsec/api";
import { expect, test } from "vitest";
import { sandboxId, TestServer } from "./support/server.ts";

const text = Buffer.from(Array.from({ length: 5000 }, (_, i) => `line ${i}\n`).join(""));

/** A command that writes `text`; connections are cut after every `every` bytes of a stream. */
function cuttingStream(every: number, seen: { spec: boolean; offset: number }[], cut: () => void) {
  return (router: ConnectRouter) =>
    router.service(CommandService, {
      async *stream(request) {
        const from = Number(request.stdoutOffset);
        seen.push({ spec: request.spec !== undefined, offset: from });
        yield { event: { case: "started", value: { commandId: request.commandId } } };
        for (let at = from; at < text.length; at += 100) {
          yield {
            event: { case: "output", value: { stream: 1, offset: BigInt(at), data: text.subarray(at, at + 100) } },
          };
          if (at - from >= every) {
            await new Promise((resolve) => setTimeout(resolve, 5));
            cut();
            return;
          }
        }
        yield { event: { case: "ended", value: { exitCode: 3 } } };
      },
    });
}

test("a stream that breaks goes on at its offset: every byte once, the true result", async () => {
  const seen: { spec: boolean; offset: number }[] = [];
  await using server: TestServer = await TestServer.start((router) =>
    cuttingStream(9000, seen, () => server.cut())(router),
  );
  const stream = server.client().sandbox(sandboxId).stream(["run"]);
  const parts: Buffer[] = [];
  let next = 0;
  for await (const chunk of stream) {
    expect(chunk.offset).toBe(next);
    next += chunk.data.length;
    parts.push(Buffer.from(chunk.data));
  }
  expect(Buffer.concat(parts).equals(text)).toBe(true);
  expect((await stream.outcome()).exitCode).toBe(3);
  expect(seen.length).toBeGreaterThan(3);
  // Only the first carried what to run: later ones attach.
  expect(seen.map(({ spec }) => spec)).toEqual([true, ...seen.slice(1).map(() => false)]);
});

test("exec whose connection breaks asks again with the same ID and gives what that ran", async () => {
  const ids: string[] = [];
  await using server: TestServer = await TestServer.start((router) =>
    router.service(CommandService, {
      exec: ({ commandId }) => {
        ids.push(commandId);
        if (ids.length < 3) server.cut();
        return { result: { commandId, outcome: { exitCode: 5 }, stdout: { data: Buffer.from([0xff, 0x41]) } } };
      },
    }),
  );
  const result = await server.client().sandbox(sandboxId).exec(["run"]);
  expect(result).toMatchObject({ exitCode: 5, stdout: "\ufffdA", truncated: { stdout: 0, stderr: 0 } });
  expect([...result.stdoutBytes]).toEqual([0xff, 0x41]);
  expect(ids.length).toBe(3);
  expect(new Set(ids).size).toBe(1);
});

test("an edge that does not come back is an infrastructure error, not a result", async () => {
  await using server = await TestServer.start((router) =>
    router.service(CommandService, {
      exec: () => {
        throw new DsecError("EDGE_UNREACHABLE", "away", { outcomeUnknown: true }).toConnect();
      },
    }),
  );
  await expect(server.client(300).sandbox(sandboxId).exec(["run"])).rejects.toMatchObject({
    reason: "EDGE_UNREACHABLE",
    outcome: "unknown",
  });
});

test("the sandbox's ID travels as a header, the key as a bearer", async () => {
  await using server = await TestServer.start((router) =>
    router.service(CommandService, { exec: () => ({ result: {} }) }),
  );
  await server.client().sandbox(sandboxId).exec(["run"]);
  expect(server.requests[0]!.headers).toMatchObject({
    "x-dsec-sandbox": sandboxId,
    authorization: "Bearer dsec_test_secret",
  });
  expect(server.requests[0]!.path).toBe("/dsec.v1.CommandService/Exec");
});

test("large input is sent in pieces at their offsets, once each, though connections break", async () => {
  const taken: Buffer[] = [];
  let calls = 0;
  let done = () => {};
  const end = new Promise<void>((resolve) => {
    done = resolve;
  });
  await using server: TestServer = await TestServer.start((router) =>
    router.service(CommandService, {
      start: ({ commandId }) => ({ command: { commandId } }),
      writeInput: ({ offset, data, endOfFile }) => {
        const have = taken.reduce((sum, part) => sum + part.length, 0);
        // At most 300,000 at a time, as a pipe that is nearly full.
        const fresh = Buffer.from(data.subarray(have - Number(offset), have - Number(offset) + 300_000));
        taken.push(fresh);
        if (++calls % 4 === 0) server.cut();
        if (endOfFile && Number(offset) + data.length === have + fresh.length) done();
        return { acceptedBytes: BigInt(have + fresh.length) };
      },
      exec: async ({ commandId }) => {
        await end;
        return { result: { commandId, outcome: { exitCode: 0 } } };
      },
    }),
  );
  const input = Buffer.alloc(3_000_000, "0123456789abcde");
  await server.client().sandbox(sandboxId).exec(["cat"], { stdin: input });
  expect(Buffer.concat(taken).equals(input)).toBe(true);
});

test("input that fails ends the command and the call", async () => {
  const killed: string[] = [];
  await using server = await TestServer.start((router) =>
    router.service(CommandService, {
      start: ({ commandId }) => ({ command: { commandId } }),
      writeInput: ({ offset, data }) => ({ acceptedBytes: offset + BigInt(data.length) }),
      exec: () => new Promise<never>(() => {}),
      signal: ({ commandId, wholeTree }) => {
        killed.push(`${commandId} ${wholeTree}`);
        return {};
      },
    }),
  );
  async function* source() {
    yield "some";
    throw new Error("the disk is gone");
  }
  await expect(server.client().sandbox(sandboxId).exec(["cat"], { stdin: source(), commandId: "c9" })).rejects.toThrow(
    "the disk is gone",
  );
  expect(killed).toEqual(["c9 true"]);
});

test("an abort gives the call up; killOnAbort ends the command too", async () => {
  const killed: string[] = [];
  await using server = await TestServer.start((router) =>
    router.service(CommandService, {
      exec: () => new Promise<never>(() => {}),
      async *stream() {
        yield { event: { case: "started", value: { commandId: "c" } } };
        await new Promise(() => {});
      },
      signal: ({ commandId }) => {
        killed.push(commandId);
        return {};
      },
    }),
  );
  const sandbox = server.client().sandbox(sandboxId);
  await expect(sandbox.exec(["x"], { signal: AbortSignal.timeout(30), commandId: "a" })).rejects.toMatchObject({
    reason: "CANCELLED",
  });
  expect(killed).toEqual([]);
  await expect(
    sandbox.exec(["x"], { signal: AbortSignal.timeout(30), killOnAbort: true, commandId: "b" }),
  ).rejects.toMatchObject({ reason: "CANCELLED" });
  const stream = sandbox.stream(["x"], { signal: AbortSignal.timeout(30), killOnAbort: true, commandId: "c" });
  await expect(stream.outcome()).rejects.toMatchObject({ reason: "CANCELLED" });
  expect(killed).toEqual(["b", "c"]);
});

test("a reader that was cut for being slow comes back by itself", async () => {
  let calls = 0;
  await using server = await TestServer.start((router) =>
    router.service(CommandService, {
      async *stream({ stdoutOffset }) {
        calls++;
        yield { event: { case: "started", value: { commandId: "c" } } };
        yield { event: { case: "output", value: { stream: 1, offset: stdoutOffset, data: Buffer.from("x") } } };
        if (calls === 1) throw new DsecError("SLOW_READER", "cut").toConnect();
        yield { event: { case: "ended", value: { exitCode: 0 } } };
      },
    }),
  );
  let got = "";
  for await (const chunk of server.client().sandbox(sandboxId).stream(["x"])) got += Buffer.from(chunk.data).toString();
  expect([got, calls]).toEqual(["xx", 2]);
});

test("a call that might do harm twice is not repeated after a break", async () => {
  let calls = 0;
  await using server: TestServer = await TestServer.start((router) =>
    router.service(FileService, {
      move: () => {
        calls++;
        server.cut();
        return {};
      },
    }),
  );
  await expect(server.client().sandbox(sandboxId).files.move("/a", "/b")).rejects.toMatchObject({
    reason: "UNAVAILABLE",
    outcome: "unknown",
  });
  expect(calls).toBe(1);
});
