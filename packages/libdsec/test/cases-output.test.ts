// Cases from the field: what a command writes arrives as it was written.
import { expect, test } from "vitest";
import { onPlatform } from "./support/platform.ts";

const on = onPlatform();

test("blank lines and carriage returns arrive as sent", async () => {
  expect((await on.sandbox.runShell("printf 'a\\n\\nb\\n\\n\\nc\\n'")).stdout).toBe("a\n\nb\n\n\nc\n");
  expect((await on.sandbox.runShell("printf 'x\\r\\ny\\r'")).stdout).toBe("x\r\ny\r");
});

test("output just before the end is never lost, 200 times", async () => {
  for (let round = 0; round < 200; round += 20) {
    const results = await Promise.all(Array.from({ length: 20 }, () => on.sandbox.exec(["echo", "late"])));
    for (const { stdout, exitCode } of results) expect([stdout, exitCode]).toEqual(["late\n", 0]);
  }
});

test("beyond the cap head and tail are kept and the middle is counted", async () => {
  const result = await on.sandbox.runShell("head -c 20000000 /dev/zero | tr '\\0' A; echo END");
  expect(result.exitCode).toBe(0);
  expect(result.stdout.endsWith("END\n")).toBe(true);
  expect(result.stdout.startsWith("AAAA")).toBe(true);
  expect(result.truncated.stdout).toBe(20_000_004 - result.stdoutBytes.length);
  expect(result.truncated.stdout).toBeGreaterThan(0);
  expect(result.stdoutTotalBytes).toBe(20_000_004);
});

test("50 MB of short lines under a cap of 64 MiB: every byte", async () => {
  const count = 5_000_000;
  const result = await on.sandbox.runShell(`yes 123456789 | head -n ${count}`, { outputCapBytes: 64 << 20 });
  expect(result.truncated.stdout).toBe(0);
  expect(result.stdoutBytes.length).toBe(count * 10);
  expect(Buffer.from(result.stdoutBytes).equals(Buffer.from("123456789\n".repeat(count)))).toBe(true);
});

test("bytes that are no UTF-8, and characters cut in two, arrive intact", async () => {
  const result = await on.sandbox.runShell(
    "printf '\\xff\\xfe\\x00\\xc3'; sleep 0.05; printf '\\xa4'; printf '\\x80' >&2",
  );
  expect([...result.stdoutBytes]).toEqual([0xff, 0xfe, 0, 0xc3, 0xa4]);
  expect([...result.stderrBytes]).toEqual([0x80]);
});

test("a stream gives each byte once, in order, while the command still runs", async () => {
  // It goes on only when what it wrote first was seen here.
  const stream = on.sandbox.stream(
    "echo one; echo err >&2; until [ -e /tmp/go ]; do sleep 0.02; done; echo two; exit 3",
    {
      timeoutMs: 30_000,
    },
  );
  const text = { stdout: "", stderr: "" };
  for await (const chunk of stream) {
    expect(chunk.offset).toBe(text[chunk.stream].length);
    text[chunk.stream] += Buffer.from(chunk.data).toString();
    if (text.stdout === "one\n") await on.sandbox.files.write("/tmp/go", "");
  }
  expect(text).toEqual({ stdout: "one\ntwo\n", stderr: "err\n" });
  expect((await stream.outcome()).exitCode).toBe(3);
});

test("three readers of one output, one dropped at random: the others have every byte once, in order", async () => {
  const whole = Array.from({ length: 20_000 }, (_, i) => `line ${i}\n`).join("");
  for (let round = 0; round < 20; round++) {
    const command = await on.sandbox.start("for ((i = 0; i < 20000; i++)); do echo line $i; done");
    const dropped = Math.floor(Math.random() * 3);
    const read = async (reader: number) => {
      const parts: Buffer[] = [];
      let bytes = 0;
      for await (const chunk of command.attach()) {
        parts.push(Buffer.from(chunk.data));
        bytes += chunk.data.length;
        if (reader === dropped && bytes > Math.random() * whole.length) return undefined;
      }
      return Buffer.concat(parts).toString();
    };
    const got = await Promise.all([0, 1, 2].map(read));
    got.forEach((text, reader) => void (reader !== dropped && expect(text).toBe(whole)));
  }
});

test("64 MiB of output and input go through whole", async () => {
  const input = Buffer.alloc(64 << 20);
  for (let i = 0; i < input.length; i += 4096) input.writeUInt32LE(i, i);
  const result = await on.sandbox.exec(["sha256sum"], { stdin: input });
  const { createHash } = await import("node:crypto");
  expect(result.stdout).toBe(`${createHash("sha256").update(input).digest("hex")}  -\n`);
  const hash = createHash("sha256");
  for await (const { data } of on.sandbox.stream("dd if=/dev/zero bs=128k count=512 2>/dev/null")) hash.update(data);
  expect(hash.digest("hex")).toBe(
    createHash("sha256")
      .update(Buffer.alloc(64 << 20))
      .digest("hex"),
  );
});

test("onStdout and onStderr see what the result holds", async () => {
  const seen = { out: "", err: "" };
  const result = await on.sandbox.runShell("echo a; echo b >&2", {
    onStdout: (data) => {
      seen.out += Buffer.from(data).toString();
    },
    onStderr: (data) => {
      seen.err += Buffer.from(data).toString();
    },
  });
  expect([seen.out, seen.err, result.stdout, result.stderr]).toEqual(["a\n", "b\n", "a\n", "b\n"]);
});
