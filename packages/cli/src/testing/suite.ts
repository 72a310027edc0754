import { randomBytes } from "node:crypto";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { chmod } from "node:fs/promises";
import { dirname, join } from "node:path";
import { treeRoot } from "../up/layout.ts";
import { checkSteps } from "./checks.ts";
import { add, type Counts, closingLine, countCargo, countVitest, one } from "./counts.ts";
import { leftBehind, look, runVariable } from "./leftovers.ts";
import { pythonTests } from "./python.ts";
import { type Ended, run } from "./run.ts";

export interface SuiteOptions {
  /** The long tests too: DSEC_TEST_ALL=1 for all that is started. */
  readonly all: boolean;
  /** Only tests and checks whose name holds it. */
  readonly pattern?: string;
}

/** One part of the suite. */
export interface Step {
  readonly name: string;
  readonly run: (tools: Tools) => Promise<Counts>;
}

export interface Tools {
  readonly root: string;
  readonly env: NodeJS.ProcessEnv;
  /** A directory of the suite's own. */
  readonly scratch: string;
  readonly pattern: string | undefined;
  /** Runs a program in the checkout. */
  readonly run: (
    file: string,
    args: readonly string[],
    options?: { cwd?: string; show?: boolean; withinMs?: number },
  ) => Promise<Ended>;
}

const minute = 60_000;

/**
 * Runs everything, going on after a failure; the last line is `N passed, M failed`.
 * @returns the exit status
 */
export async function runSuite(options: SuiteOptions): Promise<number> {
  const mark = randomBytes(8).toString("hex");
  // On a disk: /tmp may be small and in memory, and the kernel mounts no layer whose file is in memory.
  const scratch = mkdtempSync("/var/tmp/dsec-suite-");
  const temporary = mkdtempSync("/var/tmp/dsec-suite-tmp-");
  // Other users' processes, the servers' among them, must be able to go through.
  await chmod(temporary, 0o1777);
  const env = suiteEnv(mark, scratch, temporary, options.all);
  const tools: Tools = {
    root: treeRoot,
    env,
    scratch,
    pattern: options.pattern,
    run: (file, args, more = {}) => run(file, args, { cwd: treeRoot, env, ...more }),
  };
  const before = look();
  let total: Counts = { passed: 0, failed: 0, skipped: [] };
  try {
    for (const step of [...checkSteps, ...testSteps]) {
      const always = testSteps.includes(step);
      if (options.pattern !== undefined && !always && !step.name.includes(options.pattern)) continue;
      total = add(total, await runStep(step, tools));
    }
    total = add(total, await runStep(leftoverStep(before, mark, temporary), tools));
  } finally {
    rmSync(scratch, { recursive: true, force: true });
    rmSync(temporary, { recursive: true, force: true });
  }
  for (const line of total.skipped) console.log(`skipped: ${line}`);
  console.log(closingLine(total));
  return total.failed === 0 && total.passed > 0 ? 0 : 1;
}

async function runStep(step: Step, tools: Tools): Promise<Counts> {
  const from = Date.now();
  console.log(`== ${step.name}`);
  let counts: Counts;
  try {
    counts = await step.run(tools);
  } catch (error) {
    console.log(error);
    counts = one.failed;
  }
  console.log(`== ${step.name}: ${closingLine(counts)} (${((Date.now() - from) / 1000).toFixed(1)} s)\n`);
  return counts;
}

/** The caller's platform and keys are out of the tests' reach. */
function suiteEnv(mark: string, scratch: string, temporary: string, all: boolean): NodeJS.ProcessEnv {
  const env: NodeJS.ProcessEnv = { ...process.env };
  for (const name of Object.keys(env)) if (/^DSEC_(?!ROOT$|NODE$|DATABASE)/.test(name)) delete env[name];
  env["PATH"] =
    `${dirname(process.execPath)}:${env["PATH"] ?? "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}`;
  env["HOME"] ??= "/root";
  env["XDG_CONFIG_HOME"] = join(scratch, "config");
  env["TMPDIR"] = temporary;
  env["CARGO_TERM_COLOR"] = "never";
  env["NO_COLOR"] = "1";
  env[runVariable] = mark;
  if (all) env["DSEC_TEST_ALL"] = "1";
  return env;
}

const cargoTests: Step = {
  name: "tests of the native programs (cargo test)",
  run: async ({ run, root, pattern }) => {
    const args = ["test", "--workspace", "--locked", "--no-fail-fast", ...(pattern === undefined ? [] : [pattern])];
    const { status, output } = await run("cargo", args, {
      cwd: join(root, "native"),
      show: true,
      withinMs: 60 * minute,
    });
    return countCargo(output, status);
  },
};

const vitestTests: Step = {
  name: "tests of the packages (vitest)",
  run: async ({ run, scratch, pattern, env }) => {
    const report = join(scratch, "vitest.json");
    const args = [
      "node_modules/vitest/vitest.mjs",
      "run",
      "--reporter=default",
      "--reporter=json",
      `--outputFile.json=${report}`,
    ];
    if (pattern !== undefined) args.push("--passWithNoTests", pattern);
    const withinMs = (env["DSEC_TEST_ALL"] === "1" ? 240 : 60) * minute;
    const { status } = await run(process.execPath, args, { show: true, withinMs });
    return countVitest(existsSync(report) ? readFileSync(report, "utf8") : undefined, status);
  },
};

const testSteps = [cargoTests, vitestTests, pythonTests];

function leftoverStep(before: ReturnType<typeof look>, mark: string, temporary: string): Step {
  return {
    name: "nothing is left behind",
    run: async () => {
      let found = leftBehind(before, mark, temporary);
      // The kernel takes its time to let processes and cgroups go.
      for (let tries = 0; found.length > 0 && tries < 20; tries += 1) {
        await new Promise((resolve) => setTimeout(resolve, 250));
        found = leftBehind(before, mark, temporary);
      }
      for (const line of found) console.log(`left behind: ${line}`);
      return found.length === 0 ? one.passed : one.failed;
    },
  };
}
