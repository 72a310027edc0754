// Cases from the field: files and trees.
import { execFileSync } from "node:child_process";
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { onPlatform } from "./support/platform.ts";

const on = onPlatform();
const dir = mkdtempSync(join(tmpdir(), "dsec-files-"));
afterAll(() => rmSync(dir, { recursive: true }));

async function collect(source: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  for await (const part of source) parts.push(part);
  return Buffer.concat(parts);
}

test("contents are read back as they were written: bytes that are no UTF-8, and nothing at all", async () => {
  const { files } = on.sandbox;
  for (const content of [Buffer.alloc(5_242_881, 0xc3), Buffer.from([0x89, 0x50, 0x4e, 0x47])]) {
    await files.write("/tmp/x", content);
    expect(Buffer.from(await files.read("/tmp/x")).equals(content)).toBe(true);
    expect((await collect(files.readStream("/tmp/x"))).equals(content)).toBe(true);
  }
  await files.write("/tmp/empty", "");
  expect(await files.readText("/tmp/empty")).toBe("");
  expect((await files.read("/tmp/empty")).length).toBe(0);
  expect((await collect(files.readStream("/tmp/empty"))).length).toBe(0);
  await files.write("/tmp/part", "0123456789");
  expect(Buffer.from(await files.read("/tmp/part", { offset: 3, length: 4 })).toString()).toBe("3456");
});

test("50 files at once, with an empty one, nested ones and dotfiles", async () => {
  const names = Array.from({ length: 50 }, (_, i) => `/tmp/many/${i % 5}/d${i % 3}/${i % 7 === 0 ? "." : ""}file${i}`);
  await Promise.all(
    names.map((name, i) => on.sandbox.files.write(name, i === 0 ? "" : `content ${i}`, { parents: true })),
  );
  for (const [i, name] of names.entries())
    expect(await on.sandbox.files.readText(name)).toBe(i === 0 ? "" : `content ${i}`);
});

test("modes, owners, links and kinds are told; missing files are not errors of exists", async () => {
  const { files } = on.sandbox;
  await files.write("/tmp/script", "#!/bin/sh\necho ran\n", { mode: 0o755 });
  expect((await on.sandbox.exec(["/tmp/script"])).stdout).toBe("ran\n");
  await on.sandbox.runShell("ln -sfn /tmp/script /tmp/link; mkfifo /tmp/fifo");
  expect(await files.stat("/tmp/script")).toMatchObject({ type: "file", mode: 0o755, sizeBytes: 19, uid: 0 });
  expect(await files.stat("/tmp/link", { follow: false })).toMatchObject({
    type: "symlink",
    linkTarget: "/tmp/script",
  });
  expect(await files.stat("/tmp/link")).toMatchObject({ type: "file" });
  expect(await files.stat("/tmp/fifo")).toMatchObject({ type: "other" });
  expect([
    await files.exists("/tmp/script"),
    await files.exists("/tmp/none"),
    await files.exists("/tmp/script/x"),
  ]).toEqual([true, false, false]);
});

test("directories are made, listed in pages, moved and removed", async () => {
  const { files } = on.sandbox;
  await files.mkdir("/tmp/list/a/b");
  for (const name of ["z", "y", ".x"]) await files.write(`/tmp/list/${name}`, name);
  const names = [];
  for await (const entry of files.entries("/tmp/list", { pageSize: 2 })) names.push(entry.name);
  expect(names).toEqual([".x", "a", "y", "z"]);
  await expect(files.move("/tmp/list/y", "/tmp/list/z")).rejects.toMatchObject({ reason: "FILE_EXISTS" });
  await files.move("/tmp/list/y", "/tmp/list/z", { overwrite: true });
  expect(await files.readText("/tmp/list/z")).toBe("y");
  await expect(files.remove("/tmp/list")).rejects.toMatchObject({ reason: "DIRECTORY_NOT_EMPTY" });
  await files.remove("/tmp/list", { recursive: true });
  await expect(files.remove("/tmp/list")).rejects.toMatchObject({ reason: "FILE_NOT_FOUND" });
  await files.remove("/tmp/list", { missingOk: true });
});

test("wrong paths give their own errors", async () => {
  const { files } = on.sandbox;
  await expect(files.read("/none")).rejects.toMatchObject({ reason: "FILE_NOT_FOUND" });
  await expect(files.read("/etc")).rejects.toMatchObject({ reason: "IS_A_DIRECTORY" });
  await expect(files.list("/etc/passwd")).rejects.toMatchObject({ reason: "NOT_A_DIRECTORY" });
  await expect(files.read("/tmp/\0")).rejects.toMatchObject({ reason: "INVALID_PATH" });
  await expect(files.read("")).rejects.toMatchObject({ reason: "INVALID_PATH" });
  await expect(files.write("/etc/x", "", { user: "nobody" })).rejects.toMatchObject({ reason: "FILE_PERMISSION" });
});

test("a link leads nowhere but into the sandbox", async () => {
  await on.sandbox.runShell(
    "ln -sfn /../../../../etc/hostname /tmp/out; ln -sfn /proc/self/root/etc/hostname /tmp/out2",
  );
  const inside = await on.sandbox.files.readText("/etc/hostname");
  expect(await on.sandbox.files.readText("/tmp/out")).toBe(inside);
});

test("names that are odd or no UTF-8", async () => {
  const names = [
    Buffer.from("new\nline 'quote\" %41+&=?#"),
    Buffer.from([0xff, 0xfe, 0x41]),
    Buffer.alloc(255, "n"),
    Buffer.from("ä┌😀"),
  ];
  for (const name of names) {
    const path = Buffer.concat([Buffer.from("/tmp/odd/"), name]);
    await on.sandbox.files.write(path, name, { parents: true });
    expect(Buffer.from(await on.sandbox.files.read(path)).equals(name)).toBe(true);
  }
  const listed = (await on.sandbox.files.list("/tmp/odd")).map((entry) => Buffer.from(entry.nameBytes).toString("hex"));
  expect(listed.sort()).toEqual(names.map((name) => name.toString("hex")).sort());
  await on.sandbox.files.download("/tmp/odd", join(dir, "odd"));
  expect(
    (readdirSync(join(dir, "odd"), { encoding: "buffer" }) as Buffer[]).map((name) => name.toString("hex")).sort(),
  ).toEqual(listed);
});

test("a tree goes up and comes down as it was", async () => {
  const tree = join(dir, "tree");
  mkdirSync(join(tree, "deep/er"), { recursive: true });
  for (let i = 0; i < 300; i++) writeFileSync(join(tree, `deep/f${i}`), "x".repeat(i * 37));
  writeFileSync(join(tree, "deep/er/.dot"), "");
  writeFileSync(join(tree, "run"), "#!/bin/sh\n");
  chmodSync(join(tree, "run"), 0o755);
  symlinkSync("deep/f7", join(tree, "link"));
  await on.sandbox.files.upload(tree, "/work/tree");
  await on.sandbox.files.download("/work/tree", join(dir, "back"));
  const listing = (root: string) =>
    execFileSync("sh", [
      "-c",
      'cd "$1" && find . -printf "%y %m %p %l\\n" | sort; find . -type f | sort | xargs sha256sum',
      "sh",
      root,
    ]).toString();
  expect(listing(join(dir, "back"))).toBe(listing(tree));
  writeFileSync(join(dir, "one"), "single");
  await on.sandbox.files.upload(join(dir, "one"), "/work/new/one");
  await on.sandbox.files.download("/work/new/one", join(dir, "one.back"));
  expect(readFileSync(join(dir, "one.back"), "utf8")).toBe("single");
});

test("a failed write leaves the old file", async () => {
  await on.sandbox.files.write("/tmp/atomic", "old");
  async function* source() {
    yield Buffer.alloc(300_000);
    throw new Error("unplugged");
  }
  await expect(on.sandbox.files.write("/tmp/atomic", source())).rejects.toThrow("unplugged");
  expect(await on.sandbox.files.readText("/tmp/atomic")).toBe("old");
});

test("changes of a directory are seen from ready on", async () => {
  await on.sandbox.files.mkdir("/tmp/watched");
  const seen: string[] = [];
  for await (const event of on.sandbox.files.watch("/tmp/watched")) {
    if (event.type === "ready") await on.sandbox.files.write("/tmp/watched/f", "x");
    else seen.push(event.path);
    if (seen.includes("f")) break;
  }
  expect(seen).toContain("f");
});
