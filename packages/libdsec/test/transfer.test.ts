import { execFileSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { FileService } from "@dsec/api";
import { pack } from "tar-stream";
import { afterEach, beforeEach, expect, test } from "vitest";
import { percentEncoded } from "../src/files/files.ts";
import { tarOf, unpack } from "../src/index.ts";
import { sandboxId, TestServer } from "./support/server.ts";

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "dsec-transfer-"));
});
afterEach(() => rmSync(dir, { recursive: true }));

async function collect(source: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  for await (const part of source) parts.push(part);
  return Buffer.concat(parts);
}

async function* inPieces(bytes: Buffer, size: number) {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

function makeTree(root: string): void {
  mkdirSync(join(root, "a/b"), { recursive: true });
  writeFileSync(join(root, "a/empty"), "");
  writeFileSync(join(root, "a/.hidden"), "dot");
  writeFileSync(join(root, "a/b/run.sh"), "#!/bin/sh\n", { mode: 0o755 });
  chmodSync(join(root, "a/b/run.sh"), 0o755);
  writeFileSync(join(root, `a/${"n".repeat(250)}`), "long name");
  writeFileSync(Buffer.concat([Buffer.from(`${root}/`), Buffer.from([0xff, 0x0a, 0x27])]), "odd name");
  symlinkSync("../b/run.sh", join(root, "a/b/link"));
  symlinkSync("x".repeat(180), join(root, "a/b/dangling"));
}

const listing = (root: string) =>
  execFileSync("sh", [
    "-c",
    'cd "$1" && find . -printf "%y %m %s %p %l\\0" | sort -z | grep -azv "^d"; find . -type f -print0 | sort -z | xargs -0 sha256sum',
    "sh",
    root,
  ]).toString("latin1");

test("a tree comes out of our tar as it went in, read by us and by GNU tar", async () => {
  makeTree(join(dir, "in"));
  const tar = await collect(tarOf(join(dir, "in")));
  mkdirSync(join(dir, "ours"));
  const report = await unpack(inPieces(tar, 777), join(dir, "ours"));
  expect(listing(join(dir, "ours"))).toBe(listing(join(dir, "in")));
  expect(report.skipped).toEqual([]);
  mkdirSync(join(dir, "gnu"));
  execFileSync("tar", ["-x", "-f", "-", "-C", join(dir, "gnu")], { input: tar });
  expect(listing(join(dir, "gnu"))).toBe(listing(join(dir, "in")));
});

test("GNU and pax archives with long names, hard links and sparse sizes are read", async () => {
  makeTree(join(dir, "in"));
  execFileSync("ln", [join(dir, "in/a/b/run.sh"), join(dir, "in/a/hard")]);
  for (const format of ["gnu", "pax"]) {
    const tar = execFileSync("tar", ["-c", `--format=${format}`, "-C", join(dir, "in"), "."], { maxBuffer: 1 << 28 });
    mkdirSync(join(dir, format));
    await unpack(inPieces(tar, 1000), join(dir, format));
    expect(listing(join(dir, format))).toBe(listing(join(dir, "in")));
    expect(lstatSync(join(dir, format, "a/hard")).nlink).toBe(2);
  }
});

async function hostile(
  ...entries: {
    name: string;
    type?: "file" | "symlink" | "link" | "directory" | "fifo";
    linkname?: string;
    content?: string;
    mode?: number;
  }[]
): Promise<Buffer> {
  const tar = pack();
  for (const { content = "", ...entry } of entries) tar.entry(entry as never, content);
  tar.finalize();
  return collect(tar as AsyncIterable<Uint8Array>);
}

test.each([
  ["upwards", [{ name: "../evil", content: "x" }]],
  ["absolute", [{ name: "/tmp/dsec-evil", content: "x" }]],
  ["upwards inside", [{ name: "a/../../evil", content: "x" }]],
  ["through a link that is there already", [{ name: "out/evil", content: "x" }]],
  ["hard link to the outside", [{ name: "h", type: "link" as const, linkname: "../secret" }]],
  ["hard link through a link", [{ name: "h", type: "link" as const, linkname: "out/secret" }]],
])("a hostile archive writes nothing outside: %s", async (_, entries) => {
  mkdirSync(join(dir, "to"));
  mkdirSync(join(dir, "outside"));
  writeFileSync(join(dir, "outside/secret"), "s");
  writeFileSync(join(dir, "secret"), "s");
  symlinkSync(join(dir, "outside"), join(dir, "to/out"));
  await expect(unpack(inPieces(await hostile(...entries), 500), join(dir, "to"))).rejects.toMatchObject({
    reason: "PATH_LEAVES_ROOT",
  });
  expect(existsSync(join(dir, "evil"))).toBe(false);
  expect(existsSync(join(dir, "outside/evil"))).toBe(false);
});

test("links that lead outside are left out and reported; a file replaces a link instead of following it", async () => {
  mkdirSync(join(dir, "to"));
  writeFileSync(join(dir, "victim"), "safe");
  symlinkSync(join(dir, "victim"), join(dir, "to/f"));
  const tar = await hostile(
    { name: "abs", type: "symlink", linkname: "/etc/passwd" },
    { name: "up", type: "symlink", linkname: "../x" },
    { name: "d/tricky", type: "symlink", linkname: "name/../../x" },
    { name: "d/fine", type: "symlink", linkname: "../f" },
    { name: "pipe", type: "fifo" },
    { name: "f", content: "new", mode: 0o4755 },
  );
  const report = await unpack(inPieces(tar, 100), join(dir, "to"));
  expect(report.skipped.map(({ name }) => name)).toEqual(["abs", "up", "d/tricky", "pipe"]);
  expect(readFileSync(join(dir, "victim"), "utf8")).toBe("safe");
  expect(readFileSync(join(dir, "to/f"), "utf8")).toBe("new");
  expect(lstatSync(join(dir, "to/f")).mode & 0o7777).toBe(0o755);
  expect(readlinkSync(join(dir, "to/d/fine"))).toBe("../f");
});

test("an archive that is cut or damaged is told", async () => {
  const tar = await hostile({ name: "f", content: "x".repeat(2000) });
  mkdirSync(join(dir, "to"));
  await expect(unpack(inPieces(tar.subarray(0, 1500), 500), join(dir, "to"))).rejects.toMatchObject({
    reason: "ARCHIVE_INVALID",
  });
  const bad = Buffer.from(tar);
  bad[0]! ^= 1;
  await expect(unpack(inPieces(bad, 500), join(dir, "to"))).rejects.toMatchObject({ reason: "ARCHIVE_INVALID" });
});

test("paths travel as percent-encoded bytes, files whole and as streams, nothing doubled", async () => {
  expect(percentEncoded(Buffer.from([0xc3, 0x28, 0x2f, 0x20, 0x61]))).toBe("%C3%28/%20a");
  const stored = new Map<string, Buffer>();
  await using server = await TestServer.start(
    (router) =>
      router.service(FileService, {
        stat: ({ path }) => ({ file: { name: path, type: 1, mode: 0o640, sizeBytes: 1n } }),
      }),
    (request, response) => {
      const url = new URL(request.url!, "http://x");
      if (!url.pathname.endsWith("/file")) return false;
      const key = url.searchParams.get("path")!;
      if (request.method === "GET") response.writeHead(200).end(stored.get(key));
      else {
        const parts: Buffer[] = [];
        request.on("data", (part) => parts.push(part));
        request.on("end", () => {
          stored.set(key, Buffer.concat(parts));
          response.writeHead(200).end();
        });
      }
      return true;
    },
  );
  const { files } = server.client().sandbox(sandboxId);
  for (const content of [Buffer.alloc(5_242_881, 0xc3), Buffer.from([0x89, 0x50, 0x4e, 0x47]), Buffer.alloc(0)]) {
    await files.write("/x", content);
    expect(Buffer.from(await files.read("/x")).equals(content)).toBe(true);
    await files.write("/y", inPieces(content, 65_536));
    expect((await collect(files.readStream("/y"))).equals(content)).toBe(true);
  }
  await files.write("/t", "");
  expect(await files.readText("/t")).toBe("");
  writeFileSync(join(dir, "up"), "");
  truncateSync(join(dir, "up"), 3_000_000);
  await files.upload(join(dir, "up"), "/z");
  expect(stored.get("/z")!.length).toBe(3_000_000);
  await files.download("/z", join(dir, "down/deep"));
  expect(readFileSync(join(dir, "down/deep")).length).toBe(3_000_000);
  expect(lstatSync(join(dir, "down/deep")).mode & 0o777).toBe(0o640);
});

test("a source that fails cuts the body, so that no part is taken for the whole", async () => {
  let whole = false;
  await using server = await TestServer.start(
    () => {},
    (request, response) => {
      request.resume();
      request.on("end", () => {
        whole = true;
        response.end();
      });
      request.on("error", () => {});
      return true;
    },
  );
  async function* source() {
    yield Buffer.alloc(100_000);
    throw new Error("unplugged");
  }
  await expect(server.client().sandbox(sandboxId).files.write("/x", source())).rejects.toThrow("unplugged");
  expect(whole).toBe(false);
});
