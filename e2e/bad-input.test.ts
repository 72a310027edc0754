// Input that is wrong gives the typed error that says what to do, and leaves no trace.
import { connect } from "node:net";
import { DSecClient, DsecError } from "@dsec/libdsec";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { importBase } from "./support/environment.ts";
import { Platform } from "./support/platform.ts";

let platform: Platform;
let client: DSecClient;
beforeAll(async () => {
  platform = await Platform.start();
  client = platform.client();
  await importBase(client);
  const { mkdtemp, writeFile } = await import("node:fs/promises");
  const directory = await mkdtemp(`${platform.dir}/workspace-`);
  await writeFile(`${directory}/file`, "text\n");
  await client.layers.import({ kind: "workspace", name: "work", directory });
}, 300_000);
afterAll(() => platform?.[Symbol.asyncDispose]());

async function failure(work: () => Promise<unknown>): Promise<DsecError> {
  try {
    await work();
  } catch (error) {
    expect(error).toBeInstanceOf(DsecError);
    const failed = error as DsecError;
    expect(failed.message.length).toBeGreaterThan(10);
    expect(failed.next.length).toBeGreaterThan(5);
    expect(failed.message).not.toMatch(/\n\s+at /);
    return failed;
  }
  throw new Error("it did not fail");
}

const create = (more: object) => () => client.runContainer({ containerImage: "base", timeoutMs: 10_000, ...more });

describe("create", () => {
  const cases: [string, object, string][] = [
    ["an unknown image", { containerImage: "nothere" }, "LAYER_NOT_FOUND"],
    ["an unknown version", { containerImage: "base@v77" }, "LAYER_NOT_FOUND"],
    ["an unknown digest", { containerImage: `sha256:${"0".repeat(64)}` }, "LAYER_NOT_FOUND"],
    ["an unknown workspace", { workspace: "nothere" }, "LAYER_NOT_FOUND"],
    ["a base where a workspace belongs", { workspace: "base" }, "LAYER_KIND_MISMATCH"],
    ["a workspace where a base belongs", { containerImage: "work" }, "LAYER_KIND_MISMATCH"],
    ["too little memory", { memoryLimitMb: 1 }, "INVALID_LIMIT"],
    ["too little disk", { diskLimitMb: -5 }, "INVALID_ARGUMENT"],
    ["requests beyond the node", { memoryRequestMb: 10_000_000, memoryLimitMb: 10_000_000 }, "NEVER_FITS"],
    ["a bad network rule", { networkRules: { "not a domain": true } }, "INVALID_NETWORK_RULE"],
    ["a bad environment name", { env: { "A=B": "c" } }, "INVALID_ARGUMENT"],
    ["a NUL in an environment value", { env: { A: "b\0c" } }, "INVALID_ARGUMENT"],
    ["an unknown runtime", { runtime: "other" }, "INVALID_ARGUMENT"],
    ["a name with a newline", { containerImage: "ba\nse" }, "LAYER_NOT_FOUND"],
  ];
  test.each(cases)("%s", async (_, more, reason) => {
    const error = await failure(create(more));
    expect([reason, "INVALID_ARGUMENT"]).toContain(error.reason);
    expect(error.retryable).toBe(false);
  });

  test("strict makes a notice an error", async () => {
    expect((await failure(create({ networkRules: { pypi: true }, strict: true }))).reason).toBe("NOT_STRICT");
    await using sandbox = await client.runContainer({ containerImage: "base", networkRules: { pypi: true } });
    expect(sandbox.notices.map((notice) => notice.reason)).toContain("ONLY_LOOPBACK");
  });

  test("nothing is left of those that failed", async () => {
    const alive: string[] = [];
    for await (const info of client.list()) if (info.state !== "STOPPED") alive.push(info.id);
    expect(alive).toEqual([]);
  });
});

describe("who may", () => {
  test("no key, a wrong key, a key of another form", async () => {
    for (const apiKey of ["dsec_aaaa_bbbb", "x", `dsec_abcdefgh_${"a".repeat(43)}`]) {
      await using other = new DSecClient({ endpoint: platform.endpoint(), apiKey });
      expect((await failure(() => other.runContainer({ containerImage: "base" }))).reason).toBe("UNAUTHENTICATED");
    }
  });

  test("another project's sandbox is not found", async () => {
    await client.projects.create("main/other");
    const { secret } = await client.keys.create({ project: "main/other", role: "developer", name: "test" });
    await using other = new DSecClient({ endpoint: platform.endpoint(), apiKey: secret });
    await using sandbox = await client.runContainer({ containerImage: "base" });
    const theirs = other.sandbox(sandbox.id);
    expect((await failure(() => theirs.exec(["/bin/true"]))).reason).toBe("SANDBOX_NOT_FOUND");
    expect((await failure(() => theirs.stop())).reason).toBe("SANDBOX_NOT_FOUND");
    expect((await failure(() => other.projects.create("main/other/below"))).reason).toBe("PERMISSION_DENIED");
  });

  test("200 creates at once on a quota of 50 give 50", { timeout: 120_000 }, async () => {
    await client.projects.create("main/quota", { sandboxes: 50 });
    let made = 0;
    let refused = 0;
    for await (const result of client.runContainers({
      ...{ count: 200, concurrency: 200, containerImage: "base", project: "main/quota", timeoutMs: 60_000 },
    })) {
      if (result.sandbox) made++;
      else if (result.error.reason === "QUOTA_EXCEEDED") refused++;
      else throw result.error;
    }
    expect({ made, refused }).toEqual({ made: 50, refused: 150 });
    for await (const info of client.list({ project: "main/quota" })) await client.sandbox(info.id).stop();
  });
});

describe("paths and names", () => {
  test("a path that leaves the root by .., by link or by a swapped link stays inside", async () => {
    await using sandbox = await client.runContainer({ containerImage: "base" });
    await sandbox.runShell(
      "ln -s /etc/hostname /tmp/link; ln -s ../../../../../../etc/passwd /tmp/up; ln -s / /tmp/rootlink",
    );
    const inside = await sandbox.files.readText("/tmp/link");
    const leaving = await failure(() => sandbox.files.readText("/../../../../etc/hostname"));
    expect(leaving.reason).toBe("PATH_LEAVES_ROOT");
    expect(await sandbox.files.readText("/tmp/up")).toContain("root:");
    const swapping = await sandbox.start({
      shell:
        "mkdir -p /tmp/a/etc; echo mine > /tmp/a/etc/hostname; while :; do ln -sfn /tmp/a /tmp/s; ln -sfn / /tmp/s; done",
    });
    const allowed = new Set(["mine\n", inside]);
    for (let i = 0; i < 50; i++) {
      const text = await sandbox.files.readText("/tmp/s/etc/hostname").catch((error: DsecError) => {
        expect(error.reason).toBe("FILE_NOT_FOUND");
        return "mine\n";
      });
      expect(allowed).toContain(text);
    }
    await swapping.kill();
  });

  test("odd names come back as they are", async () => {
    await using sandbox = await client.runContainer({ containerImage: "base" });
    for (const name of ["new\nline", "quo'te\"s", "x".repeat(255), " lead", "-n", "ünïcode"]) {
      await sandbox.files.write(`/tmp/odd/${name}`, name, { parents: true });
      expect(await sandbox.files.readText(`/tmp/odd/${name}`)).toBe(name);
    }
    const raw = Buffer.from([0x2f, 0x74, 0x6d, 0x70, 0x2f, 0xff, 0xfe]);
    await sandbox.files.write(raw, "bytes");
    expect(await sandbox.files.readText(raw)).toBe("bytes");
    expect((await failure(() => sandbox.files.write("/tmp/a\0b", ""))).reason).toBe("INVALID_PATH");
    expect((await failure(() => sandbox.files.write(`/tmp/${"y".repeat(256)}`, ""))).reason).toMatch(
      /INVALID_PATH|FILE_FAILED/,
    );
    expect((await failure(() => sandbox.files.readText(""))).reason).toBe("INVALID_PATH");
  });

  test("empty commands", async () => {
    await using sandbox = await client.runContainer({ containerImage: "base" });
    expect((await failure(() => sandbox.runShell(""))).reason).toBe("EMPTY_COMMAND");
    expect((await failure(() => sandbox.runShell("  "))).reason).toBe("EMPTY_COMMAND");
    expect((await failure(() => sandbox.exec([]))).reason).toMatch(/EMPTY_COMMAND|INVALID_ARGUMENT/);
    expect((await sandbox.exec(["/no/such/program"])).exitCode).toBe(127);
    expect((await sandbox.exec(["/etc/hostname"])).exitCode).toBe(126);
  });
});

describe("archives", () => {
  const tar = (name: string, type = "0", link = "") => {
    const header = Buffer.alloc(512);
    header.write(name, 0, 100, "latin1");
    header.write("0000644\0", 100);
    header.write("0000000\0", 108);
    header.write("0000000\0", 116);
    header.write("00000000000\0", 124);
    header.write("00000000000\0", 136);
    header.write("        ", 148);
    header.write(type, 156);
    header.write(link, 157, 100, "latin1");
    header.write("ustar\0" + "00", 257, "latin1");
    const sum = header.reduce((total, byte) => total + byte, 0);
    header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
    return Buffer.concat([header, Buffer.alloc(1024)]);
  };
  const bad: [string, Buffer][] = [
    ["an absolute name", tar("/etc/passwd")],
    ["a name with ..", tar("a/../../b")],
    ["cut short", tar("file").subarray(0, 300)],
    ["no archive at all", Buffer.from("this is not a tar, nor anything else".repeat(40))],
  ];
  test.each(bad)("%s", async (_, body) => {
    const error = await failure(() => client.layers.import({ kind: "workspace", name: "bad", format: "tar", body }));
    expect(error.reason).toMatch(/ARCHIVE_INVALID|PATH_LEAVES_ROOT|ARCHIVE_LIMIT/);
    expect((await failure(() => client.layers.get("bad"))).reason).toBe("LAYER_NOT_FOUND");
  });
});

describe("requests", () => {
  const raw = (text: string, end: boolean) =>
    new Promise<string>((resolve) => {
      let answer = "";
      const socket = connect(platform.ports[0] ?? 0, "127.0.0.1", () => {
        if (end) socket.end(text);
        else socket.write(text);
        if (!end) setTimeout(() => socket.destroy(), 200);
      });
      socket.setEncoding("utf8").on("data", (part: string) => {
        answer += part;
      });
      socket.on("error", () => {});
      socket.on("close", () => resolve(answer));
    });

  test("cut in the middle, of no form, unknown methods: the server goes on", async () => {
    const host = `Host: 127.0.0.1\r\nAuthorization: Bearer ${platform.apiKey}\r\n`;
    await raw(
      `POST /dsec.v1.SandboxService/CreateSandbox HTTP/1.1\r\n${host}Content-Type: application/json\r\nContent-Length: 500\r\n\r\n{"crea`,
      false,
    );
    await raw("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", true);
    await raw(`GET /${"a".repeat(100_000)} HTTP/1.1\r\n${host}\r\n`, true);
    const unknown = await raw(
      `POST /dsec.v1.SandboxService/Nothing HTTP/1.1\r\n${host}Content-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}`,
      true,
    );
    expect(unknown).toContain("NO_SUCH_METHOD");
    const wrong = await raw(
      `POST /dsec.v1.SandboxService/CreateSandbox HTTP/1.1\r\n${host}Content-Type: application/json\r\nContent-Length: 8\r\nConnection: close\r\n\r\n{"x": [}`,
      true,
    );
    expect(wrong).toMatch(/invalid_argument/);
    await using sandbox = await client.runContainer({ containerImage: "base" });
    expect((await sandbox.exec(["/bin/true"])).exitCode).toBe(0);
  });
});
