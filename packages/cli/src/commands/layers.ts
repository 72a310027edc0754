// Images (what may be given as IMAGE) and all layers.
import { existsSync, statSync } from "node:fs";
import { join } from "node:path";
import type { Layer, LayerImport, LayerKind } from "@dsec/libdsec";
import { type Command, Option } from "commander";
import { withClient } from "../client.ts";
import { age, bytes, note, type PrintOptions, printJson, printList, printOne } from "../output.ts";
import { several } from "../values.ts";

interface ImportFlags extends PrintOptions {
  kind?: LayerKind;
  format?: "directory" | "tar" | "oci" | "docker";
  project?: string;
  env?: string[];
  user?: string;
  workdir?: string;
  from?: string;
}

export function registerLayers(program: Command): void {
  const image = program.command("image").description("what may be given as IMAGE: bases and imported images");
  listCommand(image, ["base"], "bases and imported images", "dsec image ls --json");
  importCommand(
    image,
    "import",
    "base",
    "docker save python:3.12 | dsec image import python - --format docker\n  dsec image import debian ./rootfs\n  dsec image import busybox ./oci-layout",
  );
  removeCommand(image, "dsec image rm debian@v1");
  image
    .command("build-debian")
    .description("make a base from Debian packages, with this machine's apt sources (needs root and mmdebstrap)")
    .argument("<name>", "name in the catalogue")
    .option("--suite <suite>", "bookworm, trixie, … (default: this machine's)")
    .option("--package <name>", "a package on top of the smallest system; several", several)
    .option("--project <path>", "project of the name")
    .option("--json", "as JSON")
    .addHelpText(
      "after",
      "\nExamples:\n  dsec image build-debian debian\n  dsec image build-debian py --package python3 --package git",
    )
    .action(async (name: string, flags: PrintOptions & { suite?: string; package?: string[]; project?: string }) => {
      const { buildDebianBase } = await import("../debian/base.ts");
      await withClient(async (client) => {
        const packages = flags.package ?? [];
        const body = await buildDebianBase({ packages, ...(flags.suite !== undefined && { suite: flags.suite }) });
        const builtFrom = ["Debian", flags.suite, ...packages].filter(Boolean).join(" ");
        showImported(
          await client.layers.import({ kind: "base", name, body, project: flags.project, builtFrom }),
          flags,
        );
      });
    });

  const layer = program.command("layer").description("layers of every kind: base, workspace, toolkit");
  listCommand(layer, undefined, "layers", "dsec layer ls --kind toolkit\n  dsec layer ls --json");
  importCommand(
    layer,
    "import",
    undefined,
    "dsec layer import --kind workspace httpx ./httpx\n  dsec layer import --kind toolkit pytest pytest.tar.zst",
  );
  layer
    .command("show")
    .description("one layer")
    .argument("<name>", "name, name@vN or sha256:…")
    .option("--json", "as JSON")
    .addHelpText("after", "\nExamples:\n  dsec layer show httpx@v2 --json")
    .action((name: string, options: PrintOptions) =>
      withClient(async (client) => printOne(await client.layers.get(name), options)),
    );
  removeCommand(layer, "dsec layer rm httpx@v1");
}

function listCommand(parent: Command, kinds: LayerKind[] | undefined, what: string, examples: string): void {
  const command = parent
    .command("ls")
    .description(`list ${what}`)
    .option("--project <path>", "of this project (default: the key's own, and public)")
    .option("--json", "as a JSON array")
    .addHelpText("after", `\nExamples:\n  ${examples}`);
  if (!kinds)
    command.addOption(new Option("--kind <kind>", "only of this kind").choices(["base", "workspace", "toolkit"]));
  command.action((options: PrintOptions & { project?: string; kind?: LayerKind }) =>
    withClient(async (client) => {
      const found: Layer[] = [];
      const wanted = kinds ?? (options.kind ? [options.kind] : []);
      for await (const one of client.layers.list({
        kinds: wanted,
        ...(options.project && { project: options.project }),
      }))
        found.push(one);
      printList(
        found,
        (one) => one.name,
        [
          { title: "NAME", of: (one) => one.fullName },
          { title: "KIND", of: (one) => one.kind },
          { title: "SIZE", of: (one) => bytes(one.metadataBytes + one.dataBytes) },
          { title: "ENTRIES", of: (one) => one.entries },
          { title: "AGE", of: (one) => age(one.createdAt) },
          { title: "FROM", of: (one) => one.builtFrom },
        ],
        options,
      );
    }),
  );
}

function importCommand(parent: Command, verb: string, kind: LayerKind | undefined, examples: string): void {
  const command = parent
    .command(verb)
    .description(
      "import from a directory, a tar (plain, gzip, zstd), an OCI layout (directory or tar) or a docker save file",
    )
    .argument("<name>", "name in the catalogue; a new version is made")
    .argument("<source>", "directory or file, or - for input")
    .addOption(
      new Option("--format <format>", "of the source (default: by its look)").choices([
        "directory",
        "tar",
        "oci",
        "docker",
      ]),
    )
    .option("--project <path>", "project of the name (default: the key's own)")
    .option("--env <NAME=VALUE>", "environment that a base brings; several", several)
    .option("--user <user>", "user of a base's commands")
    .option("--workdir <dir>", "working directory of a base")
    .option("--from <text>", "where it came from, for people")
    .option("--json", "as JSON")
    .addHelpText("after", `\nExamples:\n  ${examples}`);
  if (!kind)
    command.addOption(
      new Option("--kind <kind>", "kind of layer").choices(["base", "workspace", "toolkit"]).makeOptionMandatory(),
    );
  command.action(async (name: string, source: string, flags: ImportFlags) => {
    const what: LayerImport = {
      kind: kind ?? (flags.kind as LayerKind),
      name,
      ...(await sourceOf(source, flags.format)),
      project: flags.project,
      env: flags.env,
      user: flags.user,
      workingDir: flags.workdir,
      builtFrom: flags.from,
    };
    await withClient(async (client) => showImported(await client.layers.import(what), flags));
  });
}

function showImported(layer: Layer & { existed?: boolean }, options: PrintOptions): void {
  if (options.json) printJson(layer);
  else {
    note(
      `${layer.entries} entries, ${bytes(layer.metadataBytes + layer.dataBytes)}${layer.existed ? ", there already" : ""}`,
    );
    console.log(layer.fullName);
  }
}

function removeCommand(parent: Command, example: string): void {
  parent
    .command("rm")
    .description("remove names; refused while a sandbox uses the layer")
    .argument("<name...>", "name or name@vN")
    .addHelpText("after", `\nExamples:\n  ${example}`)
    .action((names: string[]) =>
      withClient(async (client) => {
        for (const name of names) await client.layers.delete(name);
      }),
    );
}

type Source = Pick<LayerImport, "format" | "path" | "directory" | "body">;

/** What is sent for a source, told by its look where --format does not say. */
async function sourceOf(source: string, format: ImportFlags["format"]): Promise<Source> {
  const sent = { directory: "tar", tar: "tar", oci: "oci-archive", docker: "docker-archive" } as const;
  if (source === "-") return { body: process.stdin, format: sent[format ?? "tar"] };
  if (existsSync(source) && statSync(source).isDirectory()) {
    const layout =
      format === "oci" ||
      (format === undefined && existsSync(join(source, "oci-layout")) && existsSync(join(source, "index.json")));
    return { directory: source, format: layout ? "oci-archive" : "tar" };
  }
  if (format) return { path: source, format: sent[format] };
  const { guessArchive } = await import("../guess-archive.ts");
  return { path: source, format: await guessArchive(source) };
}
