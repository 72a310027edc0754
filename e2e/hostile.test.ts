// What a misbehaving agent does gets the ordinary Linux answer; the result is right, and a neighbour is not touched.
import type { DSecClient, Sandbox } from "@dsec/libdsec";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { importBase } from "./support/environment.ts";
import { Platform } from "./support/platform.ts";
import { scale } from "./support/scale.ts";

let platform: Platform;
let client: DSecClient;
let neighbour: Sandbox;
let sandbox: Sandbox;

beforeAll(async () => {
  platform = await Platform.start();
  client = platform.client();
  await importBase(client);
  neighbour = await client.runContainer({ containerImage: "base" });
}, 300_000);
afterAll(() => platform?.[Symbol.asyncDispose]());
beforeEach(async () => {
  sandbox = await client.runContainer({ containerImage: "base", memoryLimitMb: 256, diskLimitMb: 64 });
});
afterEach(async () => {
  expect((await neighbour.exec(["/bin/echo", "fine"])).stdout).toBe("fine\n");
  await sandbox.stop();
});

const python = (program: string) => ["python3", "-c", program];

test("yes, for a second: head and tail kept, the rest counted", async () => {
  const result = await sandbox.runShell("yes", { timeoutMs: 1_000, outputCapBytes: 2 ** 20 });
  expect(result.timedOut).toBe(true);
  expect(result.truncated.stdout).toBeGreaterThan(0);
  expect(result.stdoutBytes.length).toBeLessThanOrEqual(2 ** 20);
  expect(result.stdout.startsWith("y\ny\n")).toBe(true);
});

test("a fork bomb meets the limit on processes, and its tree ends with the timeout", async () => {
  const result = await sandbox.runShell("bomb() { bomb | bomb & }; bomb; sleep 30", { timeoutMs: 3_000 });
  expect(result.timedOut || result.exitCode !== 0).toBe(true);
  expect(result.limitHit).toContain("pids");
  const after = await sandbox.exec(["/bin/echo", "alive"], { timeoutMs: 20_000 });
  expect(after.stdout).toBe("alive\n");
});

test("a memory hog is killed, the sandbox goes on", async () => {
  const result = await sandbox.exec(python("x = []\nwhile True: x.append(bytearray(1 << 24))"), { timeoutMs: 60_000 });
  expect(result.signal).toBe("SIGKILL");
  expect(result.oomKilled).toBe(true);
  expect(result.limitHit).toContain("memory");
  expect((await sandbox.exec(["/bin/echo", "alive"])).stdout).toBe("alive\n");
});

test("a full disk is an ordinary error, and space comes back", async () => {
  const fill = await sandbox.runShell("dd if=/dev/zero of=/fill bs=1M count=200", { timeoutMs: 60_000 });
  expect(fill.exitCode).toBe(1);
  expect(fill.stderr).toMatch(/No space left on device|Disk quota exceeded/);
  expect(fill.limitHit).toContain("disk");
  const again = await sandbox.runShell("rm /fill && sync && dd if=/dev/zero of=/small bs=1M count=8", {
    timeoutMs: 60_000,
  });
  expect(again.exitCode).toBe(0);
});

test("10,000 open files", async () => {
  const program =
    "import os\nn = 0\ntry:\n  while n < 10000: os.open('/dev/null', os.O_RDONLY); n += 1\nexcept OSError as e: print(e)\nprint(n)";
  const result = await sandbox.exec(python(program));
  expect(result.exitCode).toBe(0);
  expect(Number(result.stdout.trim().split("\n").at(-1))).toBeGreaterThan(1000);
});

test("a single line of 100 MB", async () => {
  const bytes = scale(100_000_000, 30_000_000);
  const result = await sandbox.runShell(`head -c ${bytes} /dev/zero | tr '\\0' x`, { timeoutMs: 60_000 });
  expect(result.exitCode).toBe(0);
  expect(result.stdoutBytes.length + result.truncated.stdout).toBe(bytes);
  const length = result.stdoutBytes.length;
  expect(Buffer.alloc(length, "x").equals(result.stdoutBytes)).toBe(true);
});

test("output that is not UTF-8 arrives as it is", async () => {
  const result = await sandbox.exec(python("import sys; sys.stdout.buffer.write(bytes(range(256)) * 40)"));
  expect(Buffer.from(result.stdoutBytes)).toEqual(
    Buffer.concat(Array(40).fill(Buffer.from(Array.from({ length: 256 }, (_, i) => i)))),
  );
});

test("a child that keeps stdout open does not hold the result back", async () => {
  const result = await sandbox.runShell("sleep 300 & echo started", { timeoutMs: 30_000 });
  expect(result).toMatchObject({ exitCode: 0, stdout: "started\n", timedOut: false });
});

test("kill -9 -1 ends what it reaches and nothing of ours", async () => {
  const result = await sandbox.exec(
    python(
      "import os, subprocess, time; subprocess.Popen(['sleep', '50']); os.kill(-1, 9); time.sleep(0.2); print('on')",
    ),
  );
  expect(result.exitCode === 0 ? result.stdout : result.signal).toMatch(/on\n|SIGKILL/);
  expect((await sandbox.exec(["/bin/echo", "alive"])).stdout).toBe("alive\n");
});

test("an overwritten bash and libc have no say in shell text and sessions", async () => {
  await sandbox.runShell(
    "for f in /bin/bash /bin/sh $(ls /lib/x86_64-linux-gnu/libc.so.6); do echo broken > $f; done; true",
  );
  const result = await sandbox.runShell("echo $((6 * 7))");
  expect(result).toMatchObject({ exitCode: 0, stdout: "42\n" });
  const session = await sandbox.session();
  expect((await session.run("x=1; echo $x")).stdout).toBe("1\n");
  const broken = await sandbox.exec(["/bin/ls"]);
  expect(broken.exitCode).toBeGreaterThanOrEqual(126);
});

test("a sandbox used again shows nothing of its last user", async () => {
  // The list of processes is taken before it is sorted: the tools that sort it would be in it or not.
  const look =
    "ls -A /tmp /dev/shm /root /var/tmp; cat /proc/sysvipc/shm /proc/sysvipc/sem /proc/sysvipc/msg | wc -l; p=$(ps -e -o comm=); echo \"$p\" | grep -v '^ps$' | sort -u; cat /proc/self/mountinfo | wc -l; hostname | wc -c";
  const clean = (await sandbox.runShell(look)).stdout;
  for (let i = 0; i < 5; i++) {
    await using dirty = await client.runContainer({ containerImage: "base" });
    const shared =
      "import ctypes; c = ctypes.CDLL(None); print(c.shmget(77, 4096, 0o1666), c.semget(77, 1, 0o1666), c.msgget(77, 0o1666))";
    await dirty.runShell(
      `echo secret | tee /tmp/s /dev/shm/s /root/s > /var/tmp/s; nohup sleep 100 & python3 -c '${shared}'`,
    );
    await dirty.stop();
    await using next = await client.runContainer({ containerImage: "base" });
    expect((await next.runShell(look)).stdout).toBe(clean);
  }
});

test("an agent that traces and opens /proc gets hold of nothing of ours while commands enter", {
  timeout: 1_200_000,
}, async () => {
  await using big = await client.runContainer({ containerImage: "base", memoryLimitMb: 1024 });
  const agent = `
import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
me = os.getpid()
host = os.readlink('/proc/self/root')
bad = set()
end = time.time() + ${scale(600, 25)}
while time.time() < end and not os.path.exists('/tmp/stop'):
    for name in os.listdir('/proc'):
        if not name.isdigit() or int(name) == me: continue
        pid = int(name)
        try: command = open(f'/proc/{pid}/cmdline', 'rb').read()
        except OSError: command = b''
        for what in ('exe', 'root', 'cwd'):
            try:
                target = os.readlink(f'/proc/{pid}/{what}')
                if 'hostd' in target or 'aether' in target or '/var/lib/dsec' in target: bad.add((what, target))
            except OSError: pass
        try:
            for fd in os.listdir(f'/proc/{pid}/fd'):
                try: target = os.readlink(f'/proc/{pid}/fd/{fd}')
                except OSError: continue
                if 'dsec' in target or 'cgroup' in target or 'hostd' in target: bad.add(('fd', target))
                if target.startswith('socket:') and command.startswith(b'/bin/true'): bad.add(('fd', 'socket'))
        except OSError: pass
        if pid == 1 and libc.ptrace(16, pid, 0, 0) == 0: bad.add(('ptrace', 'init'))
        try:
            open(f'/proc/{pid}/environ', 'rb').read()
            if pid == 1: bad.add(('environ', 'init'))
        except OSError: pass
        try:
            if pid == 1: os.listdir('/proc/1/fd'); bad.add(('fd', 'init'))
        except OSError: pass
print(sorted(bad))
`;
  const running = await big.start(python(agent));
  const commands = scale(10_000, 400);
  let next = 0;
  const lane = async () => {
    while (next++ < commands) {
      const result = await big.exec(["/bin/true"], { secretEnv: { TOKEN: "s3cret-of-ours" } });
      expect(result.exitCode).toBe(0);
    }
  };
  await Promise.all([lane(), lane(), lane(), lane()]);
  await big.files.write("/tmp/stop", "");
  const result = await running.wait();
  expect(result).toMatchObject({ exitCode: 0, stdout: "[]\n" });
});
