// Every command of the README, as it stands there, on a platform of the test's own.
import { createReadStream, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DSecClient } from "@dsec/libdsec";
import { describe, expect, test } from "vitest";
import { baseTar, makeBaseTar } from "../../../../e2e/support/environment.ts";
import { OwnPlatform, root, run } from "./support.ts";

const readme = readFileSync(join(root, "README.md"), "utf8");
const blocks = (language: string) =>
  [...readme.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\``, "gms"))].map((match) => match[1] ?? "");
const shell = blocks("sh");
const ready = process.getuid?.() === 0 && existsSync(join(root, "native/target/release/hostd"));

test("the commands about the machine exist, with the options that the README gives", async () => {
  const inText = [...readme.matchAll(/`\.\/dsec (\w+)/g)].map((match) => match[1] ?? "");
  const inBlocks = shell.flatMap((block) => [...block.matchAll(/\.\/dsec (\w+)/g)].map((match) => match[1] ?? ""));
  const help = await run(process.execPath, [join(root, "packages/cli/src/main.ts"), "--help"], process.env);
  for (const command of new Set([...inText, ...inBlocks])) {
    if (command !== "help") expect(help.stdout, command).toMatch(new RegExp(`^  ${command}\\b`, "m"));
  }
});

describe.runIf(ready)("on a platform", () => {
  test("commands, the programs and curl give what is said", async () => {
    await makeBaseTar();
    await using platform = await OwnPlatform.prepare();
    expect((await platform.up()).status).toBe(0);
    await using client = new DSecClient(platform.settings);
    await client.layers.import({ kind: "base", name: "debian", project: "public", body: createReadStream(baseTar) });
    const env = { ...platform.env, HOME: platform.dir };
    const [, commandLine = "", , pip = "", curl = ""] = shell;

    const lines = await run("bash", ["-euo", "pipefail", "-c", commandLine], env, root);
    expect(lines.stderr).toBe("");
    expect(lines.status).toBe(0);
    expect(lines.stdout).toMatch(/^hello$/m);
    expect(lines.stdout).toMatch(/^42$/m);
    expect(readFileSync("/tmp/dsec-readme-answer", "utf8")).toBe("42\n");
    rmSync("/tmp/dsec-readme-answer");

    // In the checkout's tree, where the library is found, under a name that nothing else has.
    const folder = mkdtempSync(join(root, ".dsec/readme-"));
    try {
      const program = join(folder, "hello.ts");
      writeFileSync(program, blocks("ts")[0] ?? "");
      const typescript = await run(process.execPath, [program], env, root);
      expect(typescript.stderr).toBe("");
      expect(typescript.stdout).toMatch(/^0 hello from /m);
      expect(typescript.stdout.match(/STOPPED/g)).toHaveLength(5);
    } finally {
      rmSync(folder, { recursive: true });
    }

    try {
      expect(await run("bash", ["-euo", "pipefail", "-c", pip], env, root)).toMatchObject({ status: 0 });
      const python = await run("/tmp/dsec-readme-venv/bin/python", ["-c", blocks("py")[0] ?? ""], env, root);
      expect(python.stderr).toBe("");
      expect(python.stdout).toMatch(/^0 hello from /m);
    } finally {
      rmSync("/tmp/dsec-readme-venv", { recursive: true, force: true });
    }

    const calls = await run("bash", ["-euo", "pipefail", "-c", curl], env, root);
    expect(calls.status).toBe(0);
    expect(calls.stdout).toContain('"exitCode":3');
    expect(calls.stdout).toContain(Buffer.from("hello\n").toString("base64"));
  }, 400_000);
});
