import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { DsecError } from "@dsec/api";
import { type Command, InvalidArgumentError } from "commander";
import { placesOf, treeRoot, type UpOptions } from "./up/layout.ts";

/** Commands that work on the machine and the checkout: they start, end and test the platform. */
export function registerLauncherCommands(program: Command): void {
  withPlaces(program.command("up"))
    .description("start the platform on this machine (as root); stays until Ctrl-C unless --detach")
    .option("-d, --detach", "run in the background")
    .option("-p, --port <port>", "port of the API on 127.0.0.1 (default 7878)", wholeNumber(1, 65_535))
    .option("--edges <n>", "edges to start, each with a hostd of its own (default 1)", wholeNumber(1, 16))
    .option("--slots <n>", "sandboxes that an edge can hold (default 3200 / edges)", wholeNumber(1, 3200))
    .option(
      "--ready-slots <n>",
      "of these, made ready while nothing else is to do (default by memory)",
      wholeNumber(0, 3200),
    )
    .option("--database-url <url>", "a PostgreSQL to use instead of the embedded database (or DSEC_DATABASE_URL)")
    .addHelpText("after", "\nExamples:\n  ./dsec up --detach\n  ./dsec up --edges 3 --data-dir /tmp/three --port 7900")
    .action(async (options: UpOptions & { detach?: boolean }) => await up(options));
  withPlaces(program.command("down"))
    .description("end the platform and all its sandboxes; the data are kept")
    .action(async (options: UpOptions) => {
      const { down } = await import("./up/down-command.ts");
      await down(options, say);
    });
  withPlaces(program.command("status"))
    .description("what is up; the status is 0 when it is, 3 when not")
    .option("--json", "as JSON")
    .action(async (options: UpOptions & { json?: boolean }) => {
      const { describe, status } = await import("./up/status-command.ts");
      const result = await status(options);
      if (options.json) console.log(JSON.stringify(result, null, 2));
      else for (const line of describe(result, placesOf(options).dataDir)) console.log(line);
      process.exitCode = result.up ? 0 : 3;
    });
  program
    .command("doctor")
    .description("what this machine can and cannot do for the platform, without installing anything")
    .option("--json", "as JSON")
    .option("--try", "also try mounts, namespaces, quotas and events (as root)")
    .action((options: { json?: boolean; try?: boolean }) => {
      const args = [...(options.json ? ["--json"] : []), ...(options.try ? ["--try"] : [])];
      run("sh", [join(import.meta.dirname, "doctor/doctor.sh"), ...args]);
    });
  withPlaces(program.command("quickstart"))
    .description("start the platform, make an environment, mend a bug in it, run 100 sandboxes")
    .option("-p, --port <port>", "port of the API on 127.0.0.1 (default 7878)", wholeNumber(1, 65_535))
    .option("--count <n>", "sandboxes at once at the end (default 100)", wholeNumber(1, 3200))
    .action(async (options: UpOptions & { count?: number }) => {
      const { quickstart } = await import("./quickstart/quickstart.ts");
      await quickstart(options);
    });
  program
    .command("test [pattern]")
    .description("every check and test of the checkout; touches no platform that runs")
    .option("--all", "the long ones too")
    .action(async (pattern: string | undefined, options: { all?: boolean }) => {
      const { runSuite } = await import("./testing/suite.ts");
      process.exitCode = await runSuite({ all: options.all === true, ...(pattern === undefined ? {} : { pattern }) });
    });
  program
    .command("bench <name>")
    .description("one of the benches in bench/, on a platform of its own")
    .option("--json", "the document alone on stdout")
    .option("--quick", "a short form")
    .allowUnknownOption()
    .allowExcessArguments()
    .action((name: string, _options: unknown, command: Command) => {
      if (!/^[a-z][a-z0-9-]*$/.test(name))
        throw new DsecError("INVALID_ARGUMENT", `"${name}" is no name of a bench; see bench/`);
      const at = process.argv.indexOf(name);
      run(process.execPath, [
        join(treeRoot, "bench", `${name}.ts`),
        ...(at >= 0 ? process.argv.slice(at + 1) : command.args.slice(1)),
      ]);
    });
  for (const [name, what] of [
    ["gen", "make the code again that comes from proto/"],
    ["fmt", "format everything"],
  ] as const) {
    program
      .command(name)
      .description(what)
      .action(() => run(join(treeRoot, "dsec"), [name]));
  }
}

async function up(options: UpOptions & { detach?: boolean }): Promise<void> {
  const { upDetached, upForeground } = await import("./up/up-command.ts");
  const url = options.databaseUrl ?? process.env["DSEC_DATABASE_URL"];
  const wanted = { ...options, ...(url ? { databaseUrl: url } : {}) };
  const tell = ({ state, attached, configFile }: Awaited<ReturnType<typeof upDetached>>) => {
    const other = attached ? ` already (PID ${state.pid}, started from ${state.checkout})` : "";
    console.log(`up${other}: ${state.address}`);
    console.log(`key: ${configFile}; logs: ${state.dataDir}/logs`);
  };
  if (options.detach) return tell(await upDetached(wanted, say));
  await upForeground(wanted, say, (result) => {
    tell(result);
    if (!result.attached) console.log("Ctrl-C ends the servers; sandboxes live on until `./dsec down`");
  });
}

function withPlaces(command: Command): Command {
  return command
    .option("--data-dir <dir>", "where everything is kept (default /var/lib/dsec)")
    .option("--run-dir <dir>", "where the sockets are (default /run/dsec, or one made from --data-dir)");
}

/** Runs a program in our place, as far as Node can: same terminal, same status. */
function run(file: string, args: readonly string[]): void {
  const { status, signal, error } = spawnSync(file, args, { stdio: "inherit" });
  if (error) throw new DsecError("NODE_UNFIT", `${file} cannot be started: ${error.message}`);
  process.exitCode = signal ? 1 : (status ?? 1);
}

function wholeNumber(lowest: number, highest: number) {
  return (text: string) => {
    const value = Number(text);
    if (!Number.isInteger(value) || value < lowest || value > highest) {
      throw new InvalidArgumentError(`a whole number from ${lowest} to ${highest} is wanted`);
    }
    return value;
  };
}

function say(line: string): void {
  process.stderr.write(`dsec: ${line}\n`);
}
