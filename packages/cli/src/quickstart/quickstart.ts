import { readFileSync } from "node:fs";
import { type CommandResult, DSecClient, DsecError, type Sandbox } from "@dsec/libdsec";
import { defaultDataDir, type UpOptions } from "../up/layout.ts";
import { upDetached } from "../up/up-command.ts";
import { burst } from "./burst.ts";
import { ensureLayers, names } from "./layers.ts";
import { environment, project } from "./material.ts";

const source = `/workspace/${project.file}`;
const pytest = ["python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", "toolz"] as const;
const quickCheck = [
  "python3",
  "-c",
  "import toolz; assert list(toolz.take(2, [1, 2, 3])) == [1, 2]; print('right')",
] as const;

/** Starts the platform and does its main job once, in the open: an agent's work on a real package, then many at once. */
export async function quickstart(options: UpOptions & { count?: number }): Promise<void> {
  const from = performance.now();
  const progress = (line: string) =>
    console.log(`[${((performance.now() - from) / 1000).toFixed(1).padStart(5)} s] ${line}`);
  progress("starting the platform");
  const { state, attached, configFile } = await upDetached(options, progress);
  progress(attached ? `it was up: ${state.address}` : `up: ${state.address}`);
  const settings = JSON.parse(readFileSync(configFile, "utf8")) as { endpoint: string; apiKey: string };
  await using client = new DSecClient(settings);
  // Ctrl-C puts away what was made for it; a second one ends it at once.
  const given = new AbortController();
  const { signal } = given;
  for (const name of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.once(name, () =>
      given.abort(new DsecError("CANCELLED", `${name}: the quickstart is given up; the platform stays up`)),
    );
  }
  await ensureLayers(client, progress, signal);
  const args = {
    containerImage: names.base,
    workspace: names.workspace,
    toolkits: [names.toolkit],
    workingDir: "/workspace",
    env: environment,
    labels: { from: "quickstart" },
    ttlRunningStopMs: 600_000,
    signal,
  };
  const mended = await mend(client, args, progress);
  const count = options.count ?? 100;
  progress(`${count} sandboxes at once, each with the mended file, each checking it`);
  const report = await burst(client, { ...args, ttlRunningStopMs: 300_000 }, count, async (sandbox) => {
    signal.throwIfAborted();
    await sandbox.files.write(source, mended);
    return (await sandbox.exec(quickCheck)).stdout === "right\n";
  });
  progress(
    `  ${report.ready} ready in ${report.createSeconds.toFixed(2)} s (${rate(report.ready, report.createSeconds)}), all alive together`,
  );
  progress(
    `  ${report.right} checks right in ${report.workSeconds.toFixed(2)} s (${rate(report.right, report.workSeconds)})`,
  );
  progress(
    `  ${report.ready} stopped in ${report.stopSeconds.toFixed(2)} s (${rate(report.ready, report.stopSeconds)})`,
  );
  signal.throwIfAborted();
  if (report.right !== count) {
    throw new DsecError(
      "INTERNAL",
      `only ${report.right} of ${count} came out right${report.failed[0] ? `; the first failure: ${report.failed[0]}` : ""}`,
    );
  }
  progress("done; the platform stays up");
  for (const line of farewell(state.address, configFile, options)) console.log(line);
}

type Args = Parameters<DSecClient["runContainer"]>[0];

/** The tests fail, an edit through the library mends the bug, they pass. @returns the mended file */
async function mend(client: DSecClient, args: Args, progress: (line: string) => void): Promise<string> {
  await using sandbox = await client.runContainer(args);
  progress(`sandbox ${sandbox.id}: base + workspace + toolkit`);
  const before = await tests(sandbox, args.signal);
  progress(`  its tests, with the bug: ${lastLine(before)} (exit code ${before.exitCode})`);
  if (before.exitCode !== 1) throw unexpected("the tests should fail with exit code 1", before);
  const text = await sandbox.files.readText(source);
  if (!text.includes(project.wrong)) throw new DsecError("INTERNAL", `the planted line is not in ${source}`);
  await sandbox.files.write(source, text.replace(project.wrong, project.right));
  progress(`  ${project.file} edited: "${project.wrong.trim()}" → "${project.right.trim()}"`);
  const after = await tests(sandbox, args.signal);
  progress(`  its tests, mended: ${lastLine(after)} (exit code ${after.exitCode})`);
  if (after.exitCode !== 0) throw unexpected("the tests should pass", after);
  const mended = await sandbox.files.readText(source);
  progress(`  the mended file read back: ${mended.length} characters`);
  return mended;
}

function tests(sandbox: Sandbox, signal: AbortSignal | undefined): Promise<CommandResult> {
  return sandbox.exec(pytest, { timeoutMs: 120_000, signal });
}

function unexpected(what: string, result: CommandResult): DsecError {
  return new DsecError(
    "INTERNAL",
    `${what}; they ended with ${result.exitCode ?? result.signal}:\n${`${result.stdout}${result.stderr}`.slice(-2000)}`,
  );
}

/** What comes from inside is escaped before it is shown. */
function lastLine(result: CommandResult): string {
  const lines = result.stdout.trimEnd().split("\n");
  return JSON.stringify(lines.at(-1) ?? "")
    .slice(1, -1)
    .slice(0, 120);
}

function rate(count: number, seconds: number): string {
  return `${(count / Math.max(seconds, 0.001)).toFixed(0)}/s`;
}

function farewell(address: string, configFile: string, options: UpOptions): string[] {
  const own = options.dataDir !== undefined && options.dataDir !== defaultDataDir;
  const node = process.execPath;
  const variable = own ? `XDG_CONFIG_HOME='${configFile.replace(/\/dsec\/config\.json$/, "")}' ` : "";
  return [
    "",
    `address:     ${address}`,
    `key:         in ${configFile}`,
    "TypeScript:  (in this folder)",
    `  ${variable}${node} --input-type=module -e 'import { DSecClient } from "@dsec/libdsec"; await using c = new DSecClient(); await using s = await c.runContainer({ containerImage: "${names.base}" }); console.log((await s.runShell("echo hello from $(hostname)")).stdout)'`,
    "curl:",
    `  sed -n 's/.*"apiKey": "\\(.*\\)".*/authorization: Bearer \\1/p' ${configFile} | curl -s -H @- -H 'content-type: application/json' -d '{"container": {"image": "${names.base}"}}' ${address}/dsec.v1.SandboxService/CreateSandbox`,
    `the end:     ./dsec down${own ? ` --data-dir ${options.dataDir}` : ""}`,
  ];
}
