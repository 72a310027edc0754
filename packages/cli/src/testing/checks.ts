import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { type Counts, one, verdict } from "./counts.ts";
import { pythonChecks } from "./python.ts";
import type { Ended } from "./run.ts";
import type { Step, Tools } from "./suite.ts";

/** A program of an npm package, run by our own Node. */
function nodeTool(name: string, program: string, args: readonly string[]): Step {
  return {
    name,
    run: async ({ run, root }) =>
      verdict(await run(process.execPath, [join(root, program), ...args], { withinMs: 300_000 })),
  };
}

const cargoCheck = (name: string, needs: string, args: readonly string[]): Step => ({
  name,
  run: async ({ run, root }) => {
    const cwd = join(root, "native");
    const there = await run("cargo", [needs, "--version"], { cwd });
    if (there.status !== 0) return { passed: 0, failed: 0, skipped: [`${name}: this Rust has no cargo ${needs}`] };
    return verdict(await run("cargo", args, { cwd, withinMs: 1_200_000 }));
  },
});

/** What needs no test run; each counts as one test. */
export const checkSteps: readonly Step[] = [
  nodeTool("format and lint (biome)", "node_modules/@biomejs/biome/bin/biome", ["ci", "--max-diagnostics=50", "."]),
  nodeTool("types (tsc)", "node_modules/typescript/bin/tsc", ["-p", "tsconfig.json"]),
  {
    name: "walls between the parts (dependency-cruiser)",
    run: async (tools) => verdict(await checkWalls(tools.run, tools.root)),
  },
  nodeTool("dead code (knip)", "node_modules/knip/bin/knip.js", ["--no-config-hints"]),
  nodeTool("protocol descriptions (buf lint)", "node_modules/@bufbuild/buf/bin/buf", ["lint"]),
  { name: "generated code is fresh", run: checkGenerated },
  ...pythonChecks,
  cargoCheck("format of the native programs (cargo fmt)", "fmt", ["fmt", "--all", "--check"]),
  cargoCheck("lint of the native programs (clippy)", "clippy", [
    "clippy",
    "--workspace",
    "--all-targets",
    "--locked",
    "--quiet",
    "--",
    "-D",
    "warnings",
  ]),
];

/** dependency-cruiser over the packages below `root`, with this checkout's rules and tools. */
export function checkWalls(run: Tools["run"], root: string): Promise<Ended> {
  return run(
    process.execPath,
    [
      ...["--import", join(root, "packages/cli/src/testing/walls-typescript.ts")],
      join(root, "node_modules/dependency-cruiser/bin/dependency-cruiser.mjs"),
      ...["--config", join(root, ".dependency-cruiser.cjs"), "packages", "bench"],
    ],
    { cwd: root, withinMs: 300_000 },
  );
}

/** Generates again, apart, and compares: proto/ and what was made from it are changed together. */
async function checkGenerated({ run, root, scratch, env }: Tools): Promise<Counts> {
  const copy = join(scratch, "generated");
  mkdirSync(copy);
  for (const name of ["proto", "buf.yaml", "buf.gen.yaml", "package.json"])
    cpSync(join(root, name), join(copy, name), { recursive: true });
  symlinkSync(join(root, "node_modules"), join(copy, "node_modules"));
  // buf finds its plugin on PATH.
  const path = `${join(root, "node_modules/.bin")}:${env["PATH"]}`;
  const made = await run(
    "env",
    [`PATH=${path}`, process.execPath, join(root, "node_modules/@bufbuild/buf/bin/buf"), "generate"],
    { cwd: copy },
  );
  if (made.status !== 0) return verdict(made);
  const stale = differences(join(copy, "packages/api/src/gen"), join(root, "packages/api/src/gen"));
  for (const file of stale) console.log(`not as proto/ would make it: packages/api/src/gen/${file}; run ./dsec gen`);
  return stale.length === 0 ? one.passed : one.failed;
}

function differences(a: string, b: string): string[] {
  const files = new Set([...filesBelow(a), ...filesBelow(b)]);
  return [...files].filter((file) => read(join(a, file)) !== read(join(b, file)));
}

function filesBelow(dir: string): string[] {
  if (!existsSync(dir)) return [];
  return (readdirSync(dir, { recursive: true }) as string[]).filter((file) => statSync(join(dir, file)).isFile());
}

function read(file: string): string | undefined {
  return existsSync(file) ? readFileSync(file, "utf8") : undefined;
}
