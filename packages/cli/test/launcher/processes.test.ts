import { spawn } from "node:child_process";
import { createServer } from "node:net";
import { expect, test } from "vitest";
import { commandLine, isAlive, listenersOn, startTime } from "../../src/up/processes.ts";

test("finds who listens on a port", async () => {
  const server = createServer();
  const port = await new Promise<number>((resolve) => {
    server.listen(0, "127.0.0.1", () => resolve((server.address() as { port: number }).port));
  });
  try {
    expect(listenersOn(port)).toContain(process.pid);
  } finally {
    await new Promise((resolve) => server.close(resolve));
  }
  expect(listenersOn(port)).toEqual([]);
});

test("a process is known by its PID and start time, also when its name has brackets", async () => {
  const child = spawn("bash", ["-c", "echo; exec -a 'a) (b' sleep 60"], { stdio: ["ignore", "pipe", "inherit"] });
  await new Promise((resolve) => child.stdout.once("data", resolve));
  const who = { pid: child.pid ?? 0, startTime: startTime(child.pid ?? 0) ?? "" };
  expect(who.startTime).toMatch(/^\d+$/);
  expect(isAlive(who)).toBe(true);
  expect(isAlive({ ...who, startTime: "1" })).toBe(false);
  expect(commandLine(who.pid)).toMatch(/sleep|a\) \(b/);
  const gone = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGKILL");
  await gone;
  expect(isAlive(who)).toBe(false);
});
