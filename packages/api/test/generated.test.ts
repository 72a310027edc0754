// Generated code is committed: here it is made again and compared.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const root = fileURLToPath(new URL("../../../", import.meta.url));

test("the TypeScript is fresh; else run npx buf generate", { timeout: 60_000 }, () => {
  const out = mkdtempSync(join(tmpdir(), "dsec-gen-"));
  try {
    const bin = join(root, "node_modules/.bin");
    // The plugin starts with `env node`, so this Node must be found.
    const path = [bin, join(process.execPath, ".."), process.env.PATH ?? ""].join(delimiter);
    // -o puts `out` of buf.gen.yaml below another directory.
    execFileSync(join(bin, "buf"), ["generate", "-o", out], { cwd: root, env: { ...process.env, PATH: path } });
    const made = join(out, "packages/api/src/gen");
    const files = readdirSync(made, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name).slice(made.length));
    expect(files.length).toBeGreaterThan(5);
    const committed = join(root, "packages/api/src/gen");
    for (const file of files) {
      const same = readFileSync(join(made, file), "utf8") === readFileSync(join(committed, file), "utf8");
      expect(same, file).toBe(true);
    }
    expect(readdirSync(join(committed, "dsec/v1")).sort()).toEqual(readdirSync(join(made, "dsec/v1")).sort());
  } finally {
    rmSync(out, { recursive: true });
  }
});

test("the Rust is fresh; else run cargo run -p wire-gen in native/", () => {
  const code = readFileSync(join(root, "native/wire/src/gen.rs"), "utf8");
  const [, digest, names] = /^\/\/ SHA-256 ([0-9a-f]{64}) of (.+)\n/.exec(code) ?? [];
  const hash = createHash("sha256");
  const sources = names?.split(" ") ?? [];
  expect(sources).toContain("dsec/v1/aether.proto");
  for (const name of sources) {
    hash
      .update(`${name}\0`)
      .update(readFileSync(join(root, "proto", name)))
      .update("\0");
  }
  expect(hash.digest("hex")).toBe(digest);
});
