// The Debian base without a network: what mmdebstrap is asked for, and how it fails.
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { afterEach, beforeEach, expect, test } from "vitest";
import { aptFiles, aptOptions } from "../../src/debian/apt-options.ts";
import { buildDebianBase } from "../../src/debian/base.ts";

let dir: string;
const { PATH, TMPDIR } = process.env;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "dsec-base-"));
  mkdirSync(join(dir, "tmp"));
  process.env["TMPDIR"] = join(dir, "tmp");
});
afterEach(() => {
  expect(readdirSync(join(dir, "tmp"))).toEqual([]);
  process.env["PATH"] = PATH;
  if (TMPDIR === undefined) delete process.env["TMPDIR"];
  else process.env["TMPDIR"] = TMPDIR;
  rmSync(dir, { recursive: true });
});

/** A program in mmdebstrap's place, before it on PATH. */
function standIn(script: string): void {
  writeFileSync(join(dir, "mmdebstrap"), `#!/bin/sh\n${script}\n`);
  chmodSync(join(dir, "mmdebstrap"), 0o755);
  process.env["PATH"] = `${dir}:${PATH}`;
}

test("the tar comes through, with progress, and the packages are asked for", async () => {
  standIn(
    `printf '%s\\n' "$@" > ${dir}/args; echo "I: installing" >&2; echo "I: running --setup-hook in shell" >&2; echo bytes`,
  );
  const lines: string[] = [];
  const body = await buildDebianBase({
    packages: ["python3", "git"],
    suite: "trixie",
    onProgress: (line) => lines.push(line),
  });
  expect(await text(body)).toBe("bytes\n");
  expect(lines).toEqual(["installing"]);
  const args = readFileSync(join(dir, "args"), "utf8").split("\n");
  expect(args).toContain("--include=python3,git");
  expect(args).toContain("--format=tar");
  expect(args).toContain("trixie");
});

test("a failure ends the stream with what mmdebstrap said", async () => {
  standIn("echo partial; echo 'E: no such package' >&2; exit 3");
  const body = await buildDebianBase({ packages: [] });
  await expect(text(body)).rejects.toMatchObject({
    reason: "UNAVAILABLE",
    message: "mmdebstrap failed: E: no such package",
  });
});

test("a build that is given up ends, and what mmdebstrap leaves goes", async () => {
  standIn('mkdir "$TMPDIR/left"; exec sleep 1000');
  const given = new AbortController();
  const body = await buildDebianBase({ packages: [], signal: given.signal });
  setImmediate(() => given.abort());
  await expect(text(body)).rejects.toMatchObject({ reason: "CANCELLED" });
});

test("without mmdebstrap, it says how to get it", async () => {
  process.env["PATH"] = join(dir, "tmp");
  const missing = expect.stringContaining("apt-get install mmdebstrap");
  await expect(buildDebianBase({ packages: [] })).rejects.toMatchObject({ reason: "NOT_SUPPORTED", message: missing });
});

test.each(["--hook", "a b", "a,b", "A", "../x"])("%s is no package", async (name) => {
  await expect(buildDebianBase({ packages: [name] })).rejects.toMatchObject({ reason: "INVALID_ARGUMENT" });
});

test("proxies, certificates and leave to use old lists are taken over; the rest is not", () => {
  const kept = [
    'Acquire::http::Proxy "http://proxy.test:3142";',
    `Acquire::https::CaInfo "${import.meta.filename}";`,
    'Acquire::Check-Valid-Until "false";',
  ];
  const dump = [
    ...kept,
    'Acquire::Languages "none";',
    'APT::Architecture "amd64";',
    'Acquire::http "";',
    'Dir::Etc "etc/apt";',
  ];
  expect(aptOptions(dump.join("\n"))).toEqual(kept);
  expect(aptFiles(kept)).toContain(import.meta.filename);
});
