import { existsSync, statSync } from "node:fs";
import { basename, join, posix } from "node:path";
import type { DSecClient } from "@dsec/libdsec";
import type { Command } from "commander";
import { withClient } from "../client.ts";
import { printJson, safe } from "../output.ts";

export function registerCp(program: Command): void {
  program
    .command("cp")
    .description("copy a file or tree to or from a sandbox; into a directory that is there, else to that name")
    .argument("<from>", "local path, or ID:/path")
    .argument("<to>", "local path, or ID:/path")
    .option("-u, --user <user>", "as this user inside")
    .option("--json", "as JSON")
    .addHelpText(
      "after",
      "\nExamples:\n  dsec cp ./src $id:/work/src\n  dsec cp $id:/work/report.xml .\n  dsec cp $id:/var/log logs",
    )
    .action(async (from: string, to: string, flags: { user?: string; json?: boolean }, command: Command) => {
      const source = remote(from);
      const target = remote(to);
      if (!source === !target)
        command.error("error: one of the two must be ID:/path, the other a local path", { exitCode: 2 });
      await withClient(async (client) => {
        const done = target
          ? await upload(client, from, target, flags.user)
          : await download(client, source as Remote, to, flags.user);
        if (flags.json) printJson({ name: done.to, ...done });
        for (const { name, why } of done.skipped) process.stderr.write(`dsec: left out ${safe(name)}: ${why}\n`);
      });
    });
}

interface Remote {
  id: string;
  path: string;
}

interface Done {
  from: string;
  to: string;
  skipped: { name: string; why: string }[];
}

function remote(text: string): Remote | undefined {
  const match = /^([a-z][a-z0-9]{0,11}[a-z2-7]{20}):(.*)$/s.exec(text);
  return match ? { id: match[1] as string, path: match[2] || "." } : undefined;
}

async function upload(client: DSecClient, from: string, to: Remote, user: string | undefined): Promise<Done> {
  const { files } = client.sandbox(to.id);
  const into =
    to.path.endsWith("/") ||
    (await files
      .stat(to.path, { user })
      .then((info) => info.type === "directory")
      .catch(missing));
  // As cp has it: DIR/. is the content of DIR.
  const content = /(^|\/)\.$/.test(from) && existsSync(from) && statSync(from).isDirectory();
  const path = into && !content ? posix.join(to.path, basename(from)) : to.path;
  const { skipped } = await files.upload(from, path, { user });
  return { from, to: `${to.id}:${path}`, skipped };
}

async function download(client: DSecClient, from: Remote, to: string, user: string | undefined): Promise<Done> {
  const content = /(^|\/)\.$/.test(from.path);
  const into = !content && existsSync(to) && statSync(to).isDirectory();
  const name = posix.basename(posix.resolve("/", from.path)) || "root";
  const path = into ? join(to, name) : to;
  const { skipped } = await client.sandbox(from.id).files.download(from.path, path, { user });
  return { from: `${from.id}:${from.path}`, to: path, skipped };
}

function missing(error: unknown): boolean {
  if ((error as { reason?: string }).reason === "FILE_NOT_FOUND") return false;
  throw error;
}
