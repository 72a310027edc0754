import { execFileSync } from "node:child_process";
import type { Command } from "commander";
import { expect, test } from "vitest";
import { completionScript } from "../src/completion.ts";
import { registerLauncherCommands } from "../src/launcher-commands.ts";
import { safe } from "../src/output.ts";
import { buildProgram, launcherNames } from "../src/program.ts";
import { mebibytes, milliseconds, pair, rule } from "../src/values.ts";
import { dsec } from "./support/dsec.ts";

function leaves(command: Command, path = ""): [string, Command][] {
  const children = command.commands.filter((child) => child.name() !== "help");
  if (children.length === 0) return [[path, command]];
  return children.flatMap((child) => leaves(child, `${path} ${child.name()}`.trim()));
}

function whole(): Command {
  const program = buildProgram();
  registerLauncherCommands(program);
  return program;
}

test("every command says what it does, with an example", () => {
  for (const [path, command] of leaves(buildProgram())) {
    let help = "";
    command.configureOutput({
      writeOut: (text) => {
        help += text;
      },
    });
    command.outputHelp();
    expect(command.description(), path).not.toBe("");
    expect(help, path).toContain("Examples:");
    expect(help, path).toContain(`dsec ${path.split(" ")[0]}`);
  }
});

test("the launcher's commands are the ones that main loads them for", () => {
  const program = whole();
  const own = new Set(buildProgram().commands.map((command) => command.name()));
  for (const command of program.commands) if (!own.has(command.name())) expect(launcherNames).toContain(command.name());
});

test("wrong usage ends with 2, a missing configuration with 1 and the next step", async () => {
  expect((await dsec(["stop"])).code).toBe(2);
  expect((await dsec(["nonsense"])).code).toBe(2);
  expect((await dsec(["create", "debian", "--memory", "lots"])).code).toBe(2);
  const ran = await dsec(["ls"]);
  expect(ran.code).toBe(1);
  expect(ran.stderr).toMatch(/^dsec: no endpoint.*\n {2}next: Run `dsec up`/);
  expect((await dsec(["run", "debian", "--", "true"])).code).toBe(125);
  expect((await dsec(["--version"])).stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
});

test("sizes, times, pairs and rules", () => {
  expect(["512", "512m", "4g", "1.5GiB", "1024k"].map(mebibytes)).toEqual([512, 512, 4096, 1536, 1]);
  expect(["300", "1.5s", "5m", "2h", "250ms", "1d"].map(milliseconds)).toEqual([
    300_000, 1500, 300_000, 7_200_000, 250, 86_400_000,
  ]);
  expect(pair("A=b=c", { X: "y" })).toEqual({ X: "y", A: "b=c" });
  expect(rule("npm", rule("pypi=no"))).toEqual({ pypi: false, npm: true });
  for (const wrong of ["", "x", "-1", "1 day"]) expect(() => milliseconds(wrong)).toThrow();
});

test("text from elsewhere cannot steer a terminal", () => {
  expect(safe("a\x1b]0;owned\x07b\nc\u202e\x9b1m")).toBe("a\\x1b]0;owned\\x07b\\nc\\u202e\\x9b1m");
});

const complete = (words: string[]) => {
  const script = `${completionScript(whole(), "bash")}
COMP_WORDS=(dsec "$@"); COMP_CWORD=$#; _dsec; printf '%s\\n' "\${COMPREPLY[@]}"`;
  return execFileSync("bash", ["-c", script, "bash", ...words])
    .toString()
    .trim()
    .split("\n");
};

test("bash completes commands, options of the command at hand, and choices", () => {
  expect(complete(["st"])).toEqual(["stop", "status"]);
  expect(complete(["layer", ""])).toEqual(expect.arrayContaining(["ls", "import", "show", "rm"]));
  expect(complete(["layer", "import", "--k"])).toEqual(["--kind"]);
  expect(complete(["layer", "import", "--kind", "t"])).toEqual(["toolkit"]);
  expect(complete(["run", "debian", "--wor"])).toEqual(["--workspace", "--workdir"]);
});

test("every command and option is in the scripts for zsh and fish too", () => {
  for (const shell of ["zsh", "fish"]) {
    const script = completionScript(whole(), shell) ?? "";
    for (const [path, command] of leaves(whole())) {
      for (const word of path.split(" ")) expect(script).toContain(word);
      for (const option of command.options)
        if (option.long) expect(script, `${shell} ${path}`).toContain(option.long.replace(/^--/, ""));
    }
  }
  expect(completionScript(whole(), "tcsh")).toBeUndefined();
});
