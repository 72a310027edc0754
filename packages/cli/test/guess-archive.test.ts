import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync, zstdCompressSync } from "node:zlib";
import { afterAll, expect, test } from "vitest";
import { guessArchive } from "../src/guess-archive.ts";
import { dockerSave, ociLayout, tarWith } from "./support/images.ts";

const dir = mkdtempSync(join(tmpdir(), "dsec-guess-"));
afterAll(() => rmSync(dir, { recursive: true }));

async function guess(content: Buffer): Promise<string> {
  const path = join(dir, "archive");
  writeFileSync(path, content);
  return guessArchive(path);
}

test("a docker save file, an OCI archive and a plain tar are told apart, packed or not", async () => {
  const docker = await dockerSave({ f: "x" });
  await ociLayout(join(dir, "layout"), { f: "x" });
  const oci = execFileSync("tar", ["-c", "-C", join(dir, "layout"), "."]);
  const plain = await tarWith({ "etc/manifest.json": "{}", "index.json": "{}" });
  for (const packed of [(b: Buffer) => b, gzipSync, zstdCompressSync] as ((b: Buffer) => Buffer)[]) {
    expect(await guess(packed(docker))).toBe("docker-archive");
    expect(await guess(packed(oci))).toBe("oci-archive");
    expect(await guess(packed(plain))).toBe("tar");
  }
});

test("what is damaged is left to the server, which says where", async () => {
  expect(await guess(Buffer.alloc(0))).toBe("tar");
  expect(await guess(Buffer.from("no tar at all"))).toBe("tar");
  expect(await guess(gzipSync(Buffer.alloc(2000)).subarray(0, 20))).toBe("tar");
});
