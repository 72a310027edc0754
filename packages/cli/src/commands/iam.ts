// Projects, keys and nodes.
import type { DSecClient, Quota, RoleName } from "@dsec/libdsec";
import { type Command, Option } from "commander";
import { withClient } from "../client.ts";
import { bytes, note, type PrintOptions, printJson, printList } from "../output.ts";
import { count, mebibytes, milliseconds, positive } from "../values.ts";

interface QuotaFlags extends PrintOptions {
  sandboxes?: number;
  cpu?: number;
  memory?: number;
}

export function registerIam(program: Command): void {
  const project = program.command("project").description("projects, which nest, and their quotas");
  project
    .command("ls")
    .description("projects at and below a path")
    .argument("[path]", "default: the key's own")
    .option("--json", "as a JSON array")
    .addHelpText("after", "\nExamples:\n  dsec project ls\n  dsec project ls team/eval --json")
    .action((path: string | undefined, options: PrintOptions) =>
      withClient(async (client) =>
        printList(
          await client.projects.list(path ?? ""),
          (one) => one.path,
          [
            { title: "PROJECT", of: (one) => one.path },
            { title: "SANDBOXES", of: (one) => use(one.used.sandboxes, one.quota.sandboxes) },
            { title: "CPU", of: (one) => use(one.used.cpuCores, one.quota.cpuCores) },
            { title: "MEMORY MiB", of: (one) => use(one.used.memoryMb, one.quota.memoryMb) },
          ],
          options,
        ),
      ),
    );
  withQuota(project.command("create"))
    .description("make a project below one of yours")
    .argument("<path>", "such as team/eval")
    .addHelpText("after", "\nExamples:\n  dsec project create team/eval --sandboxes 500 --memory 64g")
    .action((path: string, flags: QuotaFlags) =>
      withClient(async (client) => {
        const made = await client.projects.create(path, quotaFrom(flags));
        if (flags.json) printJson({ name: made.path, ...made });
        else console.log(made.path);
      }),
    );
  withQuota(project.command("quota"))
    .description("replace a project's quota; what is not given is unlimited")
    .argument("<path>", "project")
    .addHelpText("after", "\nExamples:\n  dsec project quota team/eval --sandboxes 100 --cpu 8")
    .action((path: string, flags: QuotaFlags) =>
      withClient(async (client) => {
        const changed = await client.projects.setQuota(path, quotaFrom(flags));
        if (flags.json) printJson({ name: changed.path, ...changed });
      }),
    );
  project
    .command("rm")
    .description("remove an empty project")
    .argument("<path>", "project")
    .addHelpText("after", "\nExamples:\n  dsec project rm team/eval")
    .action((path: string) => withClient((client) => client.projects.delete(path)));

  registerKeys(program);
  registerNodes(program);
}

function registerKeys(program: Command): void {
  const key = program.command("key").description("keys of the API");
  key
    .command("ls")
    .description("keys of a project")
    .option("--project <path>", "default: the key's own")
    .option("--json", "as a JSON array")
    .addHelpText("after", "\nExamples:\n  dsec key ls --json")
    .action((options: PrintOptions & { project?: string }) =>
      withClient(async (client) =>
        printList(
          (await client.keys.list(options.project ?? "")).map(({ name, ...one }) => ({ ...one, for: name })),
          (one) => one.id,
          [
            { title: "ID", of: (one) => one.id },
            { title: "PROJECT", of: (one) => one.project },
            { title: "ROLE", of: (one) => one.role },
            { title: "FOR", of: (one) => one.for },
            {
              title: "STATE",
              of: (one) =>
                one.revokedAt ? "revoked" : one.expiresAt && one.expiresAt < new Date() ? "expired" : "valid",
            },
          ],
          options,
        ),
      ),
    );
  key
    .command("create")
    .description("make a key; its secret is shown this once")
    .option("--project <path>", "default: the key's own")
    .addOption(
      new Option("--role <role>", "what it may do")
        .choices(["viewer", "developer", "builder", "admin"])
        .default("developer"),
    )
    .option("--name <text>", "who it is for")
    .option("--ttl <time>", "valid for this long (default: for ever)", milliseconds)
    .option("--for <user>", "write it into the configuration of this user of the machine (as root)")
    .option("--json", "as JSON")
    .addHelpText(
      "after",
      "\nExamples:\n  dsec key create --name ci --role developer --ttl 30d\n  sudo dsec key create --for alice",
    )
    .action((flags: KeyFlags) => withClient((client) => createKey(client, flags)));
  key
    .command("revoke")
    .description("end keys; they stop working within 5 s")
    .argument("<id...>", "keys")
    .addHelpText("after", "\nExamples:\n  dsec key revoke $key")
    .action((ids: string[]) =>
      withClient(async (client) => {
        for (const id of ids) await client.keys.revoke(id);
      }),
    );
}

interface KeyFlags extends PrintOptions {
  project?: string;
  role: RoleName;
  name?: string;
  ttl?: number;
  for?: string;
}

async function createKey(client: DSecClient, flags: KeyFlags): Promise<void> {
  const users = flags.for === undefined ? undefined : await import("../user-config.ts");
  // Looked up first: a key that nobody gets should not be made.
  const user = users?.lookUp(flags.for as string);
  const { key, secret } = await client.keys.create({
    ...(flags.project !== undefined && { project: flags.project }),
    role: flags.role,
    name: flags.name ?? flags.for ?? "",
    ...(flags.ttl !== undefined && { ttlMs: flags.ttl }),
  });
  if (!users || !user) {
    if (flags.json) printJson({ ...key, name: key.id, for: key.name, secret });
    else console.log(secret);
    return;
  }
  try {
    const file = users.writeConfigAs(user, { endpoint: client.endpoint, apiKey: secret });
    if (flags.json) printJson({ ...key, name: key.id, for: key.name, file });
    else console.log(file);
  } catch (error) {
    await client.keys.revoke(key.id).catch(() => note(`the key ${key.id} was made and could not be revoked`));
    const { DsecError } = await import("@dsec/api");
    throw new DsecError(
      "FILE_FAILED",
      `the configuration of ${flags.for} could not be written: ${(error as Error).message}`,
      { cause: error },
    );
  }
}

function registerNodes(program: Command): void {
  const node = program.command("node").description("nodes of the platform");
  node
    .command("ls")
    .description("nodes with their load")
    .option("--json", "as a JSON array")
    .addHelpText("after", "\nExamples:\n  dsec node ls --json")
    .action((options: PrintOptions) =>
      withClient(async (client) =>
        printList(
          await client.nodes.list(),
          (one) => one.edge,
          [
            { title: "EDGE", of: (one) => one.edge },
            {
              title: "STATE",
              of: (one) => (one.healthy ? (one.accepting ? "ready" : `closed: ${one.notAcceptingReason}`) : "away"),
            },
            { title: "SANDBOXES", of: (one) => `${one.sandboxes}/${one.maxSandboxes}` },
            { title: "CPU BUSY", of: (one) => `${Math.round(one.cpuBusy * 100)} %` },
            { title: "CPU REQUESTED", of: (one) => `${one.cpuCoresRequested.toFixed(2)}/${one.cpuCoresCapacity}` },
            { title: "MEMORY FREE", of: (one) => bytes(one.memoryMbAvailable * 1024 * 1024) },
          ],
          options,
        ),
      ),
    );
}

function withQuota(command: Command): Command {
  return command
    .option("--sandboxes <n>", "sandboxes at once", count)
    .option("--cpu <cores>", "cores requested", positive)
    .option("--memory <size>", "memory requested", mebibytes)
    .option("--json", "as JSON");
}

function quotaFrom(flags: QuotaFlags): Quota {
  return { sandboxes: flags.sandboxes, cpuCores: flags.cpu, memoryMb: flags.memory };
}

function use(used: number | undefined, quota: number | undefined): string {
  return `${Math.round((used ?? 0) * 100) / 100}${quota === undefined ? "" : `/${quota}`}`;
}
