import { cpSync, mkdirSync, mkdtempSync, readdirSync, realpathSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { checkWalls } from "../../src/testing/checks.ts";
import { run } from "../../src/testing/run.ts";

const root = join(import.meta.dirname, "../../../..");
let tree: string;

/** A copy of the sources, with the real npm packages. */
beforeEach(() => {
  tree = realpathSync(mkdtempSync(join(tmpdir(), "dsec-walls-")));
  for (const name of [".dependency-cruiser.cjs", "tsconfig.json", "package.json"])
    cpSync(join(root, name), join(tree, name));
  for (const name of readdirSync(join(root, "packages"))) {
    for (const part of ["src", "package.json"])
      cpSync(join(root, "packages", name, part), join(tree, "packages", name, part), { recursive: true });
  }
  mkdirSync(join(tree, "bench"));
  mkdirSync(join(tree, "node_modules/@dsec"), { recursive: true });
  for (const name of readdirSync(join(root, "node_modules"))) {
    if (name !== "@dsec") symlinkSync(join(root, "node_modules", name), join(tree, "node_modules", name));
  }
  for (const name of readdirSync(join(tree, "packages")))
    symlinkSync(`../../packages/${name}`, join(tree, "node_modules/@dsec", name));
});
afterEach(() => rmSync(tree, { recursive: true }));

const check = () =>
  checkWalls((file, args, more = {}) => run(file, args, { cwd: tree, env: process.env, ...more }), tree);

test("a forbidden import of a value and one of a type are found", async () => {
  expect((await check()).output).not.toContain("planted");
  writeFileSync(
    join(tree, "packages/edge/src/planted-value.ts"),
    'import { DSecClient } from "@dsec/libdsec";\nexport const a = DSecClient;\n',
  );
  writeFileSync(
    join(tree, "packages/placement/src/planted-type.ts"),
    'import type { Watcher } from "../../watcher/src/index.ts";\nexport type A = Watcher;\n',
  );
  writeFileSync(join(tree, "packages/api/src/planted-use.ts"), 'export type B = import("@dsec/iam").Thing;\n');
  const { status, output } = await check();
  expect(status).not.toBe(0);
  expect(output).toMatch(/wall-of-edge: packages\/edge\/src\/planted-value\.ts/);
  expect(output).toMatch(/wall-of-placement: packages\/placement\/src\/planted-type\.ts/);
  expect(output).toMatch(/wall-of-api: packages\/api\/src\/planted-use\.ts/);
});
