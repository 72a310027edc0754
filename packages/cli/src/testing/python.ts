import { join } from "node:path";
import { countPytest, verdict } from "./counts.ts";
import type { Step, Tools } from "./suite.ts";

/** Folders below python/ with checks and tests of their own. */
const packages = ["libdsec"] as const;

/** A Python tool in each package, from the virtual environment that the launcher made. */
function pythonTool(name: string, args: (tools: Tools) => readonly string[]): Step {
  return {
    name,
    run: async (tools) => {
      for (const one of packages) {
        const ended = await python(tools, one, args(tools));
        if (ended.status !== 0) return verdict(ended);
      }
      return verdict({ status: 0, output: "" });
    },
  };
}

function python({ run, root }: Tools, folder: string, args: readonly string[], show = false) {
  // Nothing is written into the checkout.
  return run("env", ["PYTHONDONTWRITEBYTECODE=1", join(root, ".dsec/python/bin/python"), ...args], {
    cwd: join(root, "python", folder),
    show,
    withinMs: 3_600_000,
  });
}

export const pythonChecks: readonly Step[] = [
  pythonTool("lint of the Python packages (ruff)", () => ["-m", "ruff", "check", "--no-cache", "."]),
  pythonTool("format of the Python packages (ruff)", () => ["-m", "ruff", "format", "--no-cache", "--check", "."]),
  pythonTool("types of the Python packages (mypy)", ({ root }) => [
    ...["-m", "mypy", "--cache-dir", join(root, ".dsec/cache/mypy")],
  ]),
  {
    name: "libdsec's synchronous twin is as its asynchronous classes make it",
    run: async (tools) => verdict(await python(tools, "libdsec", ["tools/make_sync.py", "--check"])),
  },
];

export const pythonTests: Step = {
  name: "tests of the Python packages (pytest)",
  run: async (tools) => {
    const chosen = tools.pattern === undefined ? [] : ["-k", tools.pattern];
    const args = ["-m", "pytest", "-rs", "--basetemp", join(tools.scratch, "pytest"), ...chosen];
    const { status, output } = await python(tools, "libdsec", args, true);
    return countPytest(output, status);
  },
};
