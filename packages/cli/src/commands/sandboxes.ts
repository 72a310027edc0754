// Commands about sandboxes that exist.
import type { SandboxInfo } from "@dsec/libdsec";
import type { Command } from "commander";
import { withClient } from "../client.ts";
import { age, bytes, type PrintOptions, printJson, printList, printOne } from "../output.ts";
import { milliseconds, pair } from "../values.ts";

interface Filter extends PrintOptions {
  label?: Record<string, string>;
  job?: string;
  project?: string;
  state?: string[];
  recursive?: boolean;
  quiet?: boolean;
}

export function registerSandboxes(program: Command): void {
  const list = program.command("ls").description("sandboxes");
  list
    .option("-l, --label <NAME=VALUE>", "only with this label", pair)
    .option("--job <name>", "only of this job")
    .option("--project <path>", "of this project (default: the key's own)")
    .option("--state <state...>", "only in these states")
    .option("-r, --recursive", "also of projects below")
    .option("-q, --quiet", "IDs alone")
    .option("--json", "as a JSON array")
    .addHelpText("after", "\nExamples:\n  dsec ls\n  dsec ls --label task=42 --json\n  dsec ls -q | xargs dsec stop")
    .action(ls);

  program
    .command("info")
    .description("one sandbox: state, limits, clocks, layers")
    .argument("<id>", "sandbox")
    .option("--json", "as JSON")
    .addHelpText("after", "\nExamples:\n  dsec info $id\n  dsec info $id --json | jq .expiresAt")
    .action((id: string, options: PrintOptions) =>
      withClient(async (client) => printOne({ name: id, ...(await client.sandbox(id).info()) }, options)),
    );

  program
    .command("events")
    .description("what happened to a sandbox, with the reason of its end")
    .argument("<id>", "sandbox")
    .option("--json", "as a JSON array")
    .addHelpText("after", "\nExamples:\n  dsec events $id")
    .action((id: string, options: PrintOptions) =>
      withClient(async (client) =>
        printList(
          await client.sandbox(id).events(),
          (event) => event.type,
          [
            { title: "AT", of: (event) => event.at.toISOString() },
            { title: "EVENT", of: (event) => event.type },
            { title: "REASON", of: (event) => event.endReason },
            { title: "MESSAGE", of: (event) => event.message },
          ],
          options,
        ),
      ),
    );

  program
    .command("usage")
    .description("CPU seconds, memory, disk and processes of a sandbox")
    .argument("<id>", "sandbox")
    .option("--json", "as JSON")
    .addHelpText("after", "\nExamples:\n  dsec usage $id --json")
    .action((id: string, options: PrintOptions) =>
      withClient(async (client) => {
        const usage = await client.sandbox(id).usage();
        if (options.json) printJson({ name: id, ...usage });
        else {
          const { memoryBytes, peakMemoryBytes, diskBytes, ...rest } = usage;
          printOne(
            { ...rest, memory: bytes(memoryBytes), peakMemory: bytes(peakMemoryBytes), disk: bytes(diskBytes) },
            options,
          );
        }
      }),
    );

  program
    .command("extend")
    .description("make the end of its life the later of what it is and now + TIME")
    .argument("<id>", "sandbox")
    .argument("<time>", "such as 10m", milliseconds)
    .option("--json", "as JSON")
    .addHelpText("after", "\nExamples:\n  dsec extend $id 2h")
    .action((id: string, byMs: number, options: PrintOptions) =>
      withClient(async (client) => {
        const expiresAt = await client.sandbox(id).extend(byMs);
        if (options.json) printJson({ name: id, expiresAt });
        else console.log(expiresAt.toISOString());
      }),
    );

  program
    .command("stop")
    .description("end sandboxes and remove their files")
    .argument("[id...]", "sandboxes")
    .option("--all", "every sandbox of the project")
    .option("-l, --label <NAME=VALUE>", "those with this label", pair)
    .option("--job <name>", "those of this job")
    .option("--project <path>", "with --all, --label or --job: of this project")
    .option(
      "--keep <time>",
      "keep the writable layer this long (what is made from it comes with a later release)",
      milliseconds,
    )
    .option("--json", "as a JSON array")
    .addHelpText("after", "\nExamples:\n  dsec stop $id\n  dsec stop --label task=42\n  dsec stop --all")
    .action(stop);
}

async function ls(options: Filter): Promise<void> {
  await withClient(async (client) => {
    const unreachable = new Set<string>();
    const found: SandboxInfo[] = [];
    const { label: labels, job, project, state: states, recursive } = options;
    const onUnreachable = (edges: string[]) => edges.forEach((edge) => void unreachable.add(edge));
    for await (const one of client.list({ labels, job, project, states, recursive, onUnreachable })) found.push(one);
    if (options.quiet && !options.json) for (const one of found) console.log(one.id);
    else {
      printList(
        found,
        (one) => one.id,
        [
          { title: "ID", of: (one) => one.id },
          { title: "STATE", of: (one) => one.state },
          { title: "AGE", of: (one) => age(one.createdAt) },
          { title: "PROJECT", of: (one) => one.project },
          {
            title: "LAYERS",
            of: (one) => one.layers.map((layer) => layer.name || layer.digest.slice(0, 12)).join(" "),
          },
          {
            title: "LABELS",
            of: (one) =>
              Object.entries(one.labels)
                .map(([name, value]) => `${name}=${value}`)
                .join(" "),
          },
        ],
        options,
      );
    }
    if (unreachable.size > 0) {
      process.stderr.write(
        `dsec: these edges do not answer, so their sandboxes are missing here: ${[...unreachable].join(" ")}\n`,
      );
      process.exitCode = 1;
    }
  });
}

interface StopFlags extends PrintOptions {
  all?: boolean;
  label?: Record<string, string>;
  job?: string;
  project?: string;
  keep?: number;
}

async function stop(ids: string[], options: StopFlags, command: Command): Promise<void> {
  const filtered = options.all || options.label || options.job;
  if (ids.length > 0 === Boolean(filtered))
    command.error("error: give IDs, or --all, --label or --job", { exitCode: 2 });
  await withClient(async (client) => {
    const wanted = [...ids];
    if (filtered)
      for await (const one of client.list({ labels: options.label, job: options.job, project: options.project }))
        wanted.push(one.id);
    const stopped: { id: string; state: string }[] = [];
    const { report } = await import("../report.ts");
    const lane = async () => {
      for (let id = wanted.shift(); id !== undefined; id = wanted.shift()) {
        try {
          const { state } = await client.sandbox(id).stop(options.keep === undefined ? {} : { keepMs: options.keep });
          stopped.push({ id, state });
        } catch (error) {
          process.exitCode = report(error);
        }
      }
    };
    await Promise.all(Array.from({ length: 16 }, lane));
    if (options.json) printJson(stopped.map((one) => ({ name: one.id, ...one })));
    else if (!filtered || process.stdout.isTTY) for (const one of stopped) console.log(one.id);
  });
}
