// Cases from the field: how commands start, end and are found again.
import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { isInfrastructureError } from "../src/index.ts";
import { onPlatform } from "./support/platform.ts";

const on = onPlatform();
const processes = async (pattern: string) => (await on.sandbox.runShell(`pgrep -fc '${pattern}'`)).stdout.trim();

test("a timeout ends a busy command, and a delete after it is quick", async () => {
  const sandbox = await on.client.runContainer({ containerImage: "base" });
  const result = await sandbox.exec(["python3", "-c", "while 1: pass"], { timeoutMs: 1000 });
  expect(result).toMatchObject({ timedOut: true });
  expect((await sandbox.exec(["pgrep", "-c", "python3"])).stdout).toBe("0\n");
  const began = performance.now();
  await sandbox.delete();
  expect(performance.now() - began).toBeLessThan(10_000);
});

test("a timeout ends what the command left in the background, and its port", async () => {
  const command = await on.sandbox.start("python3 -m http.server 3000 & wait", { timeoutMs: 3000 });
  expect((await command.wait()).timedOut).toBe(true);
  expect(await processes("[h]ttp.server 3000")).toBe("0");
  expect((await on.sandbox.runShell("exec 3<>/dev/tcp/127.0.0.1/3000")).exitCode).not.toBe(0);
});

test("a command that ended is waited for at once, with its own code", async () => {
  const command = await on.sandbox.start("exit 7");
  await sleep(2000);
  expect((await command.wait()).exitCode).toBe(7);
  const next = await on.sandbox.start("sleep 1; exit 9");
  expect(await next.poll()).toBeUndefined();
  expect((await next.wait()).exitCode).toBe(9);
  expect((await command.wait()).exitCode).toBe(7);
});

test("bash -i answers, with a terminal and without", async () => {
  for (const pty of [false, true]) {
    const result = await on.sandbox.exec(["bash", "-ic", "echo hi"], { pty, timeoutMs: 20_000 });
    expect(result.timedOut).toBe(false);
    expect(result.stdout.trim().split("\n").at(-1)).toBe("hi");
  }
});

test("what a command detaches lives on when it ends by itself, not after a kill", async () => {
  const result = await on.sandbox.runShell("nohup setsid sleep 611 >/dev/null 2>&1 &");
  expect(result.exitCode).toBe(0);
  // It may still be on its way from nohup to sleep.
  for (let i = 0; i < 50 && (await processes("^sleep 611")) !== "1"; i++) await sleep(20);
  expect(await processes("^sleep 611")).toBe("1");
  const command = await on.sandbox.start("nohup setsid sleep 612 >/dev/null 2>&1 & sleep 613");
  for (let i = 0; i < 50 && (await processes("^sleep 61[23]")) !== "2"; i++) await sleep(20);
  await command.kill();
  expect((await command.wait()).signal).toBe("SIGKILL");
  expect(await processes("^sleep 61[23]")).toBe("0");
  await on.sandbox.runShell("pkill -f '^sleep 611'");
});

test("a child that keeps stdout open does not hold the result", async () => {
  const result = await on.sandbox.runShell("sleep 614 & echo done", { timeoutMs: 30_000 });
  expect([result.stdout, result.exitCode, result.timedOut]).toEqual(["done\n", 0, false]);
  await on.sandbox.runShell("pkill -f '^sleep 614'");
});

test("exit codes of shells, replaced shells and sessions", async () => {
  expect((await on.sandbox.runShell("exit 5")).exitCode).toBe(5);
  expect((await on.sandbox.runShell("exec sh -c 'exit 6'")).exitCode).toBe(6);
  await using session = await on.sandbox.session();
  expect((await session.run("(exit 7)")).exitCode).toBe(7);
  expect((await session.run("cd /tmp; v=1; f() { echo $v; }")).exitCode).toBe(0);
  expect((await session.run("pwd; f")).stdout).toBe("/tmp\n1\n");
  expect(await session.run("exit 8")).toMatchObject({ exitCode: 8 });
  expect(await session.run("echo x$v")).toMatchObject({ exitCode: 0, stdout: "x\n", sessionRestarted: true });
});

test("values of variables arrive byte for byte", async () => {
  const long = Array.from({ length: 2500 }, (_, i) => `line ${i} of a long value with more text`)
    .join("\n")
    .slice(0, 100_000);
  const odd = "-n a'b\"c$HOME\\";
  const digest = (text: string) => createHash("sha256").update(text).digest("hex");
  for (const value of [long, odd]) {
    const result = await on.sandbox.exec(
      ["python3", "-c", "import os,hashlib;print(hashlib.sha256(os.environb[b'V']).hexdigest())"],
      { env: { V: value } },
    );
    expect(result.stdout.trim()).toBe(digest(value));
  }
});

test("secret variables are inside, and in no history", async () => {
  const result = await on.sandbox.runShell("echo $TOKEN", { secretEnv: { TOKEN: "hush-hush" }, commandId: "secret1" });
  expect(result.stdout).toBe("hush-hush\n");
  expect(JSON.stringify(await on.sandbox.command("secret1").info())).not.toContain("hush-hush");
});

test("a group added to a user counts for its next command", async () => {
  const setUp = await on.sandbox.runShell("groupadd g1 && useradd -m user1 && usermod -aG g1 user1");
  expect(setUp.exitCode).toBe(0);
  expect((await on.sandbox.exec(["id", "-Gn"], { user: "user1" })).stdout.trim().split(" ")).toContain("g1");
});

test("empty commands are wrong arguments; a missing program is 127, one that may not run 126", async () => {
  await expect(on.sandbox.runShell("")).rejects.toMatchObject({ reason: "EMPTY_COMMAND" });
  await expect(on.sandbox.runShell("  ")).rejects.toMatchObject({ reason: "EMPTY_COMMAND" });
  await expect(on.sandbox.exec([])).rejects.toMatchObject({ code: 3 });
  expect((await on.sandbox.exec(["/no/such"])).exitCode).toBe(127);
  expect((await on.sandbox.exec(["/etc/passwd"])).exitCode).toBe(126);
});

test("asking again with a command's ID attaches; it runs once", async () => {
  const line = ["sh", "-c", "echo run >> /tmp/runs; sleep 0.3; echo out"];
  const results = await Promise.all([1, 2, 3].map(() => on.sandbox.exec(line, { commandId: "once1" })));
  for (const result of results) expect(result).toMatchObject({ stdout: "out\n", exitCode: 0, commandId: "once1" });
  expect((await on.sandbox.exec(line, { commandId: "once1" })).stdout).toBe("out\n");
  expect(await on.sandbox.files.readText("/tmp/runs")).toBe("run\n");
});

test("a terminal is UTF-8 and ends cleanly with the command's code", async () => {
  const terminal = await on.sandbox.terminal({ command: ["bash", "--norc", "-i"], env: { PS1: "$ " } });
  let text = "";
  const decoder = new TextDecoder();
  terminal.onData((data) => (text += decoder.decode(data, { stream: true })));
  terminal.write("locale charmap; printf '┌─┐\\n'; stty size\r");
  terminal.resize({ rows: 33, cols: 101 });
  for (let i = 0; i < 200 && !text.includes("\n┌─┐"); i++) await sleep(25);
  terminal.write("stty size; exit 4\r");
  expect((await terminal.ended).exitCode).toBe(4);
  expect(text).toContain("UTF-8");
  expect(text).toContain("\n┌─┐\r\n");
  expect(text).toContain("33 101");
});

test("input written in pieces, signals, and the history", async () => {
  const command = await on.sandbox.start(["cat"], { stdinOpen: true });
  await command.writeInput("one\n");
  await command.writeInput("two\n");
  await command.closeInput();
  expect((await command.wait()).stdout).toBe("one\ntwo\n");
  await expect(command.writeInput("three")).rejects.toMatchObject({ reason: "STDIN_CLOSED" });

  const sleeping = await on.sandbox.start(["sleep", "600"]);
  await sleeping.kill("SIGTERM", { wholeTree: false });
  expect((await sleeping.wait()).signal).toBe("SIGTERM");
  const history = [];
  for await (const info of on.sandbox.commands({ pageSize: 7 })) history.push(info.commandId);
  expect(history).toEqual(expect.arrayContaining([command.id, sleeping.id]));
  expect(new Set(history).size).toBe(history.length);
});

test("a command that the memory limit ends says so, and the sandbox goes on", async () => {
  await using sandbox = await on.client.runContainer({ containerImage: "base", memoryLimitMb: 64 });
  const result = await sandbox.exec(["python3", "-c", "x = bytearray(200 << 20)"]);
  expect(result).toMatchObject({ oomKilled: true, limitHit: ["memory"] });
  expect((await sandbox.exec(["echo", "alive"])).stdout).toBe("alive\n");
});

test("an abort with killOnAbort leaves no process", async () => {
  const error = await on.sandbox
    .exec(["sleep", "617"], { signal: AbortSignal.timeout(300), killOnAbort: true })
    .catch((thrown) => thrown);
  expect(error).toMatchObject({ reason: "CANCELLED" });
  expect(isInfrastructureError(error)).toBe(false);
  expect(await processes("^sleep 617")).toBe("0");
});

test("an edge that is killed and started again is not seen by what runs", async () => {
  const edge = `edge-${on.platform.edges[0]}`;
  const lines = Array.from({ length: 40 }, (_, i) => `line ${i}\n`).join("");
  const running = [0, 1, 2].map((code) =>
    on.sandbox.runShell(`for ((i = 0; i < 40; i++)); do echo line $i; sleep 0.05; done; exit ${code}`),
  );
  const streamed = (async () => {
    let text = "";
    for await (const { data } of on.sandbox.stream("for ((i = 0; i < 40; i++)); do echo line $i; sleep 0.05; done"))
      text += Buffer.from(data).toString();
    return text;
  })();
  await sleep(500);
  await on.platform.kill(edge);
  await sleep(200);
  await on.platform.startProgram(edge);
  expect(await streamed).toBe(lines);
  for (const [code, result] of (await Promise.all(running)).entries())
    expect(result).toMatchObject({ exitCode: code, stdout: lines });
});
