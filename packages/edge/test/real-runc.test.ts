// What the edge offers, in sandboxes that runc starts: the same as in those of hostd itself.
import { once } from "node:events";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { LimitHit, SandboxState } from "@dsec/api";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { WebSocket } from "ws";
import { reasonOf } from "./support/client.ts";
import { until } from "./support/fake-edge.ts";
import { cannotRun, RealNode } from "./support/real-node.ts";

const profile = process.env.DSEC_TEST_PROFILE ?? "debug";
const init = join(import.meta.dirname, "../../../native/target", profile, "sandbox-init");

function cannotRunRunc(): string {
  if (!["/usr/sbin/runc", "/usr/bin/runc"].some(existsSync)) return "no runc is installed";
  return existsSync(init) ? cannotRun() : "sandbox-init is not built; `cargo test` of the native programs does";
}

const why = cannotRunRunc();
if (why !== "") console.log(`skipped: sandboxes of runc: ${why}`);
const shell = (value: string) => ({ what: { case: "shell" as const, value } });
const text = (bytes: Uint8Array | undefined) => Buffer.from(bytes ?? []).toString();

describe.skipIf(why !== "")(`sandboxes of runc${why && ` (${why})`}`, () => {
  let node: RealNode;
  beforeAll(async () => {
    node = await RealNode.start();
  });
  afterAll(() => node?.stop());

  const make = (args: object = {}, request: object = {}) => node.create({ runtime: "runc", ...args }, request);
  async function run(sandboxId: string, command: string, more: object = {}) {
    const { result } = await node.client.commands.exec({ sandboxId, spec: { ...shell(command), ...more } });
    return { out: text(result?.stdout?.data), code: result?.outcome?.exitCode, outcome: result?.outcome };
  }

  test("commands, sessions, files and a terminal", async () => {
    const { sandboxId, state } = await make({ env: { FOO: "bar" }, secretEnv: { TOKEN: "t0p" } });
    expect(state).toBe(SandboxState.RUNNING);
    expect(await run(sandboxId, "echo $FOO $TOKEN; id -un; exit 5", { user: "user" })).toMatchObject({
      out: "bar t0p\nuser\n",
      code: 5,
    });
    const late = await run(sandboxId, "setsid sleep 1000 & sleep 1000", { timeoutMs: 300n });
    expect(late.outcome?.timedOut).toBe(true);
    expect((await run(sandboxId, "ps | grep -c 'sleep [1]000'")).out).toBe("0\n");

    const sessionId = (await node.client.sessions.openSession({ sandboxId })).session?.sessionId ?? "";
    await run(sandboxId, "cd /tmp; X=5; f() { echo f$X; }", { sessionId });
    expect((await run(sandboxId, "pwd; f", { sessionId })).out).toBe("/tmp\nf5\n");
    expect((await run(sandboxId, "exit 8", { sessionId })).code).toBe(8);

    const at = `/v1/sandboxes/${sandboxId}/file?path=/root/%ff&mode=0640`;
    const data = Buffer.alloc(3_000_001, 0xc3);
    expect((await node.client.http("PUT", at, data)).status).toBe(200);
    expect(Buffer.compare((await node.client.http("GET", at)).body, data)).toBe(0);
    expect((await run(sandboxId, "stat -c '%a %u %s' /root/*")).out).toBe("640 0 3000001\n");
    const tree = await node.client.http("GET", `/v1/sandboxes/${sandboxId}/tree?path=/root`);
    expect((await node.client.http("PUT", `/v1/sandboxes/${sandboxId}/tree?path=/copy`, tree.body)).status).toBe(200);
    expect((await run(sandboxId, "diff -r /root /copy && echo same")).out).toBe("same\n");

    const spec = { ...shell("stty size; read x; echo got $x; exit 4"), pty: { rows: 30, cols: 90 }, stdinOpen: true };
    await node.client.commands.start({ sandboxId, commandId: "term", spec });
    const url = `ws+unix://${node.client.socketPath}:/v1/sandboxes/${sandboxId}/terminal?command_id=term`;
    const ws = new WebSocket(url, { headers: { "x-dsec-principal": node.client.token } });
    let output = "";
    ws.on("message", (part, binary) => {
      if (binary) output += String(part);
    });
    await once(ws, "open");
    ws.send(Buffer.from("words\n"));
    await once(ws, "close");
    expect(output.replaceAll("\r", "")).toContain("30 90\n");
    expect(output.replaceAll("\r", "")).toContain("got words\n");
    await node.client.sandboxes.stopSandbox({ sandboxId });
    expect(await reasonOf(node.client.commands.exec({ sandboxId, spec: shell("x") }))).toBe("SANDBOX_ENDED");
  });

  test("limits hold, and what met them is said", async () => {
    const { sandboxId } = await make({ memoryLimitMb: 48n, diskLimitMb: 32n, pidsLimit: 32 });
    const disk = await run(sandboxId, "dd if=/dev/zero of=/root/big bs=1M count=64");
    expect([disk.code, disk.outcome?.limitHit]).toEqual([1, [LimitHit.DISK]]);
    const memory = await run(sandboxId, "rm /root/big; head -c 200m /dev/zero | tail -c 150m | wc -c");
    expect(memory.outcome?.limitHit).toContain(LimitHit.MEMORY);
    const processes = await run(sandboxId, "for i in $(seq 60); do sleep 3 & done");
    expect(processes.outcome?.limitHit).toContain(LimitHit.PIDS);
    const { usage } = await node.client.sandboxes.getUsage({ sandboxId });
    expect(usage?.cpuSeconds).toBeGreaterThan(0);
    await node.client.sandboxes.stopSandbox({ sandboxId });
  });

  test("edge and hostd killed with commands that run: every byte and code is right", async () => {
    const ids = await Promise.all([0, 1, 2, 3].map(async () => (await make({}, { labels: { of: "runc" } })).sandboxId));
    const counted = (n: number) =>
      `i=0; while [ $i -lt 150 ]; do echo line $i; i=$((i+1)); sleep 0.01; done; exit ${n}`;
    await Promise.all(
      ids.map((sandboxId, i) => node.client.commands.start({ sandboxId, commandId: "count", spec: shell(counted(i)) })),
    );
    await node.killEdge();
    await node.killHostd();
    node.startHostd();
    await node.startEdge();
    const expected = Array.from({ length: 150 }, (_, i) => `line ${i}\n`).join("");
    for (const [i, sandboxId] of ids.entries()) {
      const { result } = await node.client.commands.wait({ sandboxId, commandId: "count", waitMs: 60_000n });
      expect([result?.outcome?.exitCode, text(result?.stdout?.data)]).toEqual([i, expected]);
    }
    const { sandboxes } = await node.client.sandboxes.listSandboxes({ labels: { of: "runc" } });
    expect(sandboxes.map((one) => one.sandboxId).sort()).toEqual(ids.sort());
    await Promise.all(ids.map((sandboxId) => node.client.sandboxes.stopSandbox({ sandboxId })));
    await until(() => node.leftProcesses().length === 0, "the end of every process");
  });

  test("kept after its stop, and its end is told when its init is killed", async () => {
    const { sandboxId } = await make();
    await run(sandboxId, "echo kept > /root/f");
    const { sandbox } = await node.client.sandboxes.stopSandbox({ sandboxId, keepMs: 60_000n });
    expect(sandbox?.state).toBe(SandboxState.STOPPED);
    expect(Number(sandbox?.keepUntilMs)).toBeGreaterThan(Date.now());
    await node.client.sandboxes.deleteSandbox({ sandboxId });
    const lost = await make();
    for (const pid of node.leftProcesses()) process.kill(pid, "SIGKILL");
    const reason = () => reasonOf(node.client.sandboxes.getSandbox({ sandboxId: lost.sandboxId })).catch(() => "");
    await until(async () => (await reason()) === "SANDBOX_LOST", "the loss");
  });
});
