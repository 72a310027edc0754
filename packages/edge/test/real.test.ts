// The edge over the real hostd and aether, on the real kernel.
import { createHash } from "node:crypto";
import { once } from "node:events";
import { LimitHit, SandboxState } from "@dsec/api";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { WebSocket } from "ws";
import { reasonOf } from "./support/client.ts";
import { until } from "./support/fake-edge.ts";
import { cannotRun, RealNode } from "./support/real-node.ts";

const why = cannotRun();
const shell = (value: string) => ({ what: { case: "shell" as const, value } });
const text = (bytes: Uint8Array | undefined) => Buffer.from(bytes ?? []).toString();

describe.skipIf(why !== "")(`real sandboxes${why && ` (${why})`}`, () => {
  let node: RealNode;
  beforeAll(async () => {
    node = await RealNode.start();
  });
  afterAll(() => node?.stop());

  async function run(sandboxId: string, command: string, more: object = {}) {
    const { result } = await node.client.commands.exec({ sandboxId, spec: { ...shell(command), ...more } });
    return {
      out: text(result?.stdout?.data),
      err: text(result?.stderr?.data),
      code: result?.outcome?.exitCode,
      result,
    };
  }

  test("a command in a container, with its environment, user and codes", async () => {
    const { sandboxId, state } = await node.create({ env: { FOO: "bar" }, secretEnv: { TOKEN: "t0p" } });
    expect(state).toBe(SandboxState.RUNNING);
    expect((await run(sandboxId, "echo hello $FOO $TOKEN; id -u; echo err >&2")).out).toBe("hello bar t0p\n0\n");
    expect((await run(sandboxId, "exit 5")).code).toBe(5);
    expect((await run(sandboxId, "exec sh -c 'exit 6'")).code).toBe(6);
    const missing = await node.client.commands.exec({
      sandboxId,
      spec: { what: { case: "argv", value: { args: [Buffer.from("/no/such")] } } },
    });
    expect(missing.result?.outcome?.exitCode).toBe(127);
    expect((await run(sandboxId, "printf 'a\\n\\nb\\n\\n\\nc\\n'")).out).toBe("a\n\nb\n\n\nc\n");
    expect((await run(sandboxId, "id -un", { user: "user" })).out).toBe("user\n");
    await node.client.sandboxes.stopSandbox({ sandboxId });
    expect(await reasonOf(node.client.commands.exec({ sandboxId, spec: shell("x") }))).toBe("SANDBOX_ENDED");
  });

  test("200 times the same is 200 times right", async () => {
    const { sandboxId } = await node.create();
    for (let i = 0; i < 200; i++) {
      const { out, code } = await run(sandboxId, "echo late");
      expect([out, code]).toEqual(["late\n", 0]);
    }
  });

  test("output beyond the cap keeps head and tail", async () => {
    const { sandboxId } = await node.create();
    const { result } = await run(sandboxId, "head -c 20000000 /dev/zero | tr '\\0' A; echo END");
    const data = text(result?.stdout?.data);
    expect([data.endsWith("AEND\n"), data.length, result?.outcome?.exitCode]).toEqual([true, 16 * 1024 * 1024, 0]);
    expect(Number(result?.stdout?.droppedBytes)).toBe(20_000_004 - 16 * 1024 * 1024);
  });

  test("128 MiB stream through, every byte in its place", async () => {
    const { sandboxId } = await node.create();
    const hash = createHash("sha256");
    let next = 0;
    const command = "dd if=/dev/zero bs=131072 count=1024 2>/dev/null | tr '\\0' B";
    for await (const { event } of node.client.commands.stream({ sandboxId, spec: shell(command) })) {
      if (event.case !== "output") continue;
      expect(Number(event.value.offset)).toBe(next);
      next += event.value.data.length;
      hash.update(event.value.data);
    }
    expect(next).toBe(128 * 1024 * 1024);
    expect(hash.digest("hex")).toBe(createHash("sha256").update(Buffer.alloc(next, "B")).digest("hex"));
  });

  test("a timeout ends the whole tree", async () => {
    const { sandboxId } = await node.create();
    const { result } = await run(sandboxId, "setsid sleep 1000 & sleep 1000", { timeoutMs: 500n });
    expect(result?.outcome?.timedOut).toBe(true);
    expect((await run(sandboxId, "ps | grep -c 'sleep [1]000'")).out).toBe("0\n");
  });

  test("in the background, attached again by ID, never run twice", async () => {
    const { sandboxId } = await node.create();
    const spec = shell("echo $$ >> /tmp/runs; sleep 0.3; echo out; exit 7");
    await node.client.commands.start({ sandboxId, commandId: "bg", spec });
    await node.client.commands.start({ sandboxId, commandId: "bg", spec });
    expect((await node.client.commands.wait({ sandboxId, commandId: "bg" })).result).toBeUndefined();
    const { result } = await node.client.commands.wait({ sandboxId, commandId: "bg", waitMs: 20_000n });
    expect([result?.outcome?.exitCode, text(result?.stdout?.data)]).toEqual([7, "out\n"]);
    const again = await node.client.commands.exec({ sandboxId, commandId: "bg", spec });
    expect(again.result?.outcome?.exitCode).toBe(7);
    expect((await run(sandboxId, "wc -l < /tmp/runs")).out).toBe("1\n");
    const { commands } = await node.client.commands.listCommands({ sandboxId });
    expect(commands.map((c) => c.commandId)[0]).toBe("bg");
    expect(await reasonOf(node.client.commands.getCommand({ sandboxId, commandId: "none" }))).toBe("COMMAND_NOT_FOUND");
  });

  test("input goes in at its offset, once", async () => {
    const { sandboxId } = await node.create();
    await node.client.commands.start({ sandboxId, commandId: "in", spec: { ...shell("cat"), stdinOpen: true } });
    const write = (offset: bigint, data: string, endOfFile = false) =>
      node.client.commands.writeInput({ sandboxId, commandId: "in", offset, data: Buffer.from(data), endOfFile });
    expect((await write(0n, "abc")).acceptedBytes).toBe(3n);
    expect((await write(0n, "abcdef")).acceptedBytes).toBe(6n);
    expect(await reasonOf(write(100n, "x"))).toBe("INPUT_GAP");
    await write(6n, "", true);
    const { result } = await node.client.commands.wait({ sandboxId, commandId: "in", waitMs: 20_000n });
    expect(text(result?.stdout?.data)).toBe("abcdef");
  });

  test("the caller leaves, the command goes on", async () => {
    const { sandboxId } = await node.create();
    const leave = new AbortController();
    const spec = shell("sleep 1; echo done > /tmp/mark");
    const call = node.client.commands.exec({ sandboxId, commandId: "left", spec }, { signal: leave.signal });
    setTimeout(() => leave.abort(), 200);
    await expect(call).rejects.toThrow();
    const { result } = await node.client.commands.wait({ sandboxId, commandId: "left", waitMs: 20_000n });
    expect(result?.outcome?.exitCode).toBe(0);
  });

  test("a session keeps its state", async () => {
    const { sandboxId } = await node.create();
    const { session } = await node.client.sessions.openSession({ sandboxId });
    const sessionId = session?.sessionId ?? "";
    await run(sandboxId, "cd /tmp; X=5; f() { echo f$X; }", { sessionId });
    expect((await run(sandboxId, "pwd; f", { sessionId })).out).toBe("/tmp\nf5\n");
    expect((await run(sandboxId, "exit 8", { sessionId })).code).toBe(8);
    const next = await run(sandboxId, "echo x", { sessionId });
    expect([next.out, next.result?.outcome?.sessionRestarted]).toEqual(["x\n", true]);
    await node.client.sessions.closeSession({ sandboxId, sessionId });
    expect((await node.client.sessions.listSessions({ sandboxId })).sessions).toEqual([]);
  });

  test("files up and down, any bytes, any names", async () => {
    const { sandboxId } = await node.create();
    const at = (path: string, more = "") => `/v1/sandboxes/${sandboxId}/file?path=${path}${more}`;
    const contents = [Buffer.alloc(5_242_881, 0xc3), Buffer.from([0x89, 0x50, 0x4e, 0x47]), Buffer.alloc(0)];
    for (const data of contents) {
      expect((await node.client.http("PUT", at("/root/%ff%0a%22file"), data)).status).toBe(200);
      const read = await node.client.http("GET", at("/root/%ff%0a%22file"));
      expect([read.status, Buffer.compare(read.body, data)]).toEqual([200, 0]);
    }
    expect((await node.client.http("GET", at("/etc/passwd", "&offset=5&length=4"))).body.toString()).toBe("x:0:");
    expect((await node.client.http("GET", at("/proc/self/status"))).body.toString()).toContain("Name:");
    const modes = await node.client.http("PUT", at("/root/a/b/c", "&parents=1&mode=0751"), "x");
    expect(modes.status).toBe(200);
    expect((await run(sandboxId, "stat -c %a /root/a/b/c")).out).toBe("751\n");
    const missing = await node.client.http("GET", at("/none"));
    expect([missing.status, JSON.parse(missing.body.toString()).code]).toEqual([404, "not_found"]);
    for (const path of ["", "/a%00b", "%zz"]) expect((await node.client.http("GET", at(path))).status).toBe(400);
    const { file } = await node.client.files.stat({ sandboxId, path: Buffer.from("/root/a/b") });
    expect(file?.mode).toBe(0o755);
    expect(await reasonOf(node.client.files.stat({ sandboxId, path: Buffer.from("") }))).toBe("INVALID_PATH");
    expect(await reasonOf(node.client.files.stat({ sandboxId, path: Buffer.from("/nope") }))).toBe("FILE_NOT_FOUND");
  });

  test("links and dots do not lead out of the root", async () => {
    const { sandboxId } = await node.create();
    await run(sandboxId, "ln -s ../../../../../../etc/shadow /tmp/l; ln -s / /tmp/r");
    const passwd = await node.client.http("GET", `/v1/sandboxes/${sandboxId}/file?path=/../../../etc/passwd`);
    expect(JSON.parse(passwd.body.toString()).details[0].debug.reason).toBe("PATH_LEAVES_ROOT");
    expect((await node.client.http("GET", `/v1/sandboxes/${sandboxId}/file?path=/tmp/l`)).status).toBe(404);
    expect(
      (await node.client.http("GET", `/v1/sandboxes/${sandboxId}/file?path=/tmp/r/etc/passwd`)).body.toString(),
    ).toContain("user:x:1000");
  });

  test("a body that is cut leaves the old file", async () => {
    const { sandboxId } = await node.create();
    const path = `/v1/sandboxes/${sandboxId}/file?path=/root/keep`;
    await node.client.http("PUT", path, "old");
    const http = await import("node:http");
    await new Promise<void>((resolve) => {
      const headers = { "x-dsec-principal": node.client.token, "content-length": 1000 };
      const req = http.request({ socketPath: node.client.socketPath, method: "PUT", path, headers });
      req.on("error", () => resolve());
      req.write("new", () => setTimeout(() => req.destroy(), 200));
    });
    await until(async () => (await run(sandboxId, "ls -A /root")).out === "keep\n", "the partial file's end");
    expect((await run(sandboxId, "cat /root/keep")).out).toBe("old");
  });

  test("trees up and down", async () => {
    const { sandboxId } = await node.create();
    await run(
      sandboxId,
      "mkdir -p /root/t/.d/e; cd /root/t; for i in $(seq 50); do echo $i > f$i; done; : > .empty; echo x > .d/e/g",
    );
    const tar = await node.client.http("GET", `/v1/sandboxes/${sandboxId}/tree?path=/root/t`);
    expect(tar.status).toBe(200);
    expect((await node.client.http("PUT", `/v1/sandboxes/${sandboxId}/tree?path=/root/u`, tar.body)).status).toBe(200);
    expect((await run(sandboxId, "cd /root; diff -r t u && ls -A u | wc -l")).out).toBe("52\n");
  });

  test("the disk's limit holds, and says so", async () => {
    const { sandboxId } = await node.create({ diskLimitMb: 32n });
    const { err, code, result } = await run(sandboxId, "dd if=/dev/zero of=/root/big bs=1M count=64");
    expect(err).toMatch(/No space left|Disk quota exceeded/);
    expect([code, result?.outcome?.limitHit]).toEqual([1, [LimitHit.DISK]]);
    const other = await node.create({ diskLimitMb: 32n });
    expect((await run(other.sandboxId, "exit 1")).result?.outcome?.limitHit).toEqual([]);
    const put = await node.client.http(
      "PUT",
      `/v1/sandboxes/${sandboxId}/file?path=/root/more`,
      Buffer.alloc(40 << 20),
    );
    expect([put.status, JSON.parse(put.body.toString()).code]).toEqual([429, "resource_exhausted"]);
  });

  test("a watch tells changes", async () => {
    const { sandboxId } = await node.create();
    const leave = new AbortController();
    const seen: string[] = [];
    const watching = (async () => {
      for await (const { events } of node.client.files.watch(
        { sandboxId, path: Buffer.from("/tmp") },
        { signal: leave.signal },
      )) {
        for (const event of events) {
          seen.push(Buffer.from(event.path).toString());
          if (event.type === 1) void run(sandboxId, "echo x > /tmp/new");
          if (seen.includes("new")) leave.abort();
        }
      }
    })();
    await watching.catch(() => {});
    expect(seen).toContain("new");
  });

  test("a terminal: charset, sizes, input, a clean end with its code", async () => {
    const { sandboxId } = await node.create();
    const spec = {
      ...shell("stty size; printf '┌─┐\\n'; read line; echo got $line; stty size; exit 4"),
      pty: { rows: 30, cols: 90 },
      stdinOpen: true,
    };
    await node.client.commands.start({ sandboxId, commandId: "term", spec });
    const url = `ws+unix://${node.client.socketPath}:/v1/sandboxes/${sandboxId}/terminal?command_id=term`;
    const ws = new WebSocket(url, { headers: { "x-dsec-principal": node.client.token } });
    let output = "";
    let last = {};
    ws.on("message", (data, binary) => {
      if (binary) output += String(data);
      else last = JSON.parse(String(data));
    });
    await once(ws, "open");
    await until(() => output.includes("┌─┐"), "the output");
    ws.send(JSON.stringify({ resize: { rows: 40, cols: 100 } }));
    await new Promise((resolve) => setTimeout(resolve, 200));
    ws.send(Buffer.from("some words\n"));
    const [code] = await once(ws, "close");
    expect(output.replaceAll("\r", "")).toContain("30 90\n┌─┐\n");
    expect(output.replaceAll("\r", "")).toContain("got some words\n40 100\n");
    expect([code, last]).toMatchObject([1000, { ended: { exitCode: 4 } }]);
  });

  test("nothing is reached before it is ready", async () => {
    const startCommand = { argv: [], shell: "sleep 1000", readyProbe: "test -e /tmp/go" };
    const call = node.create({ startCommand }, { deadlineUnixMs: BigInt(Date.now() + 3000), labels: { slow: "1" } });
    call.catch(() => {});
    let sandboxId = "";
    await until(async () => {
      const { sandboxes } = await node.client.sandboxes.listSandboxes({ labels: { slow: "1" } });
      sandboxId = sandboxes[0]?.sandboxId ?? "";
      return sandboxId !== "";
    }, "the sandbox in the list");
    expect(await reasonOf(node.client.commands.exec({ sandboxId, spec: shell("touch /tmp/go") }))).toBe(
      "SANDBOX_NOT_READY",
    );
    expect(await reasonOf(call)).toBe("DEADLINE_EXCEEDED");
    expect(await reasonOf(node.client.sandboxes.getSandbox({ sandboxId }))).toBe("SANDBOX_NOT_FOUND");
  });

  test("a reader that takes nothing for 30 s is cut alone, and comes back at its offset", async () => {
    const { sandboxId } = await node.create();
    const command = "sleep 1; dd if=/dev/zero bs=131072 count=256 2>/dev/null; exit 9";
    const events: { at: number; length: number }[] = [];
    const slow = async () => {
      for await (const { event } of node.client.commands.stream({
        sandboxId,
        commandId: "slow",
        spec: shell(command),
      })) {
        if (event.case !== "output") continue;
        events.push({ at: Number(event.value.offset), length: event.value.data.length });
        // Longer than the edge waits, once.
        if (events.length === 1) await new Promise((resolve) => setTimeout(resolve, 35_000));
      }
    };
    await node.client.commands.start({ sandboxId, commandId: "slow", spec: shell(command) });
    const cut = reasonOf(slow());
    const { result } = await node.client.commands.wait({ sandboxId, commandId: "slow", waitMs: 50_000n });
    expect([result?.outcome?.exitCode, Number(result?.outcome?.stdoutBytes)]).toEqual([9, 32 * 1024 * 1024]);
    expect(await cut).toBe("SLOW_READER");
    const reached = events.reduce((sum, event) => sum + event.length, 0);
    expect(events.at(-1)).toMatchObject({ at: reached - (events.at(-1)?.length ?? 0) });
    let dropped = 0;
    let read = 0;
    const again = { sandboxId, commandId: "slow", stdoutOffset: BigInt(reached) };
    for await (const { event } of node.client.commands.stream(again)) {
      if (event.case !== "output") continue;
      dropped += Number(event.value.droppedBytes);
      read += event.value.data.length;
    }
    expect(reached + dropped + read).toBe(32 * 1024 * 1024);
  }, 120_000);

  test("usage is measured", async () => {
    const { sandboxId } = await node.create();
    await run(sandboxId, "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done");
    const { usage } = await node.client.sandboxes.getUsage({ sandboxId });
    expect(usage?.cpuSeconds).toBeGreaterThan(0);
    expect(usage?.processes).toBeGreaterThan(0);
  });

  test("a start command is waited for by its probe", async () => {
    const startCommand = { argv: [], shell: "sleep 0.5; touch /tmp/up; sleep 1000", readyProbe: "test -e /tmp/up" };
    const { sandboxId } = await node.create({ startCommand: startCommand });
    expect((await run(sandboxId, "ls /tmp")).out).toContain("up");
  });

  test("idle and life end it", async () => {
    const idle = await node.create({}, { idleMs: 1000n });
    const life = await node.create({}, { ttlMs: 1000n });
    const busy = await node.create({}, { idleMs: 1000n });
    await node.client.commands.start({ sandboxId: busy.sandboxId, spec: shell("sleep 1000") });
    const gone = async (id: string) =>
      (await reasonOf(node.client.sandboxes.getSandbox({ sandboxId: id })).catch(() => "")) === "SANDBOX_ENDED";
    await until(() => gone(idle.sandboxId), "the idle end");
    await until(() => gone(life.sandboxId), "the end of life");
    expect((await node.client.sandboxes.getSandbox({ sandboxId: busy.sandboxId })).sandbox?.state).toBe(
      SandboxState.RUNNING,
    );
  });

  test("an aether that is killed is told as lost", async () => {
    const { sandboxId } = await node.create();
    const { AetherControl } = await import("../src/aether/control.ts");
    const { readdirSync } = await import("node:fs");
    for (const slot of readdirSync(node.runDir).filter((name) => /^\d+$/.test(name))) {
      const control = new AetherControl(`${node.runDir}/${slot}/aether.sock`, sandboxId, () => {});
      const hello = await control.hello.catch(() => undefined);
      control.close();
      if (hello) process.kill(hello.aetherPid, "SIGKILL");
    }
    await until(
      async () => (await reasonOf(node.client.sandboxes.getSandbox({ sandboxId })).catch(() => "")) === "SANDBOX_LOST",
      "the loss",
    );
  });

  test("kept files outlive the stop, and go with the delete", async () => {
    const { sandboxId } = await node.create();
    const { sandbox } = await node.client.sandboxes.stopSandbox({ sandboxId, keepMs: 60_000n });
    expect(sandbox?.state).toBe(SandboxState.STOPPED);
    await node.client.sandboxes.deleteSandbox({ sandboxId });
    expect(await reasonOf(node.client.sandboxes.getSandbox({ sandboxId }))).toBe("SANDBOX_ENDED");
  });
});
