import { createWriteStream, readFileSync } from "node:fs";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { type DSecClient, DsecError, type LayerImport } from "@dsec/libdsec";
import { buildDebianBase } from "../debian/base.ts";
import { project, Scratch, toolkitTree, workspaceTree } from "./material.ts";

/** Names in the catalogue of what the quickstart makes; all may use them. */
export const names = {
  base: "public/debian",
  workspace: "public/toolz-with-a-bug",
  toolkit: "public/pytest",
} as const;

/** Changes when the content of a layer does, so that an older one is not taken for it. */
const edition = 2;
const basePackages = ["python3", "ca-certificates"];

/** Makes the three layers of the environment where the catalogue does not have them yet. */
export async function ensureLayers(
  client: DSecClient,
  progress: (line: string) => void,
  signal: AbortSignal,
): Promise<void> {
  using scratch = new Scratch();
  const release = /^VERSION_CODENAME=(\w+)/m.exec(readFileSync("/etc/os-release", "utf8"))?.[1] ?? "debian";
  await ensure(client, progress, signal, {
    fullName: names.base,
    builtFrom: `Debian ${release}: ${basePackages.join(", ")} (quickstart)`,
    what: "a base from Debian packages (mmdebstrap; a minute or two the first time)",
    // Kept whole here first: a build that breaks off is then no half upload, and an upload waits for no build.
    make: async () => {
      const path = join(scratch.dir, "base.tar");
      await pipeline(await buildDebianBase({ packages: basePackages, signal }), createWriteStream(path));
      return { kind: "base", path };
    },
  });
  await ensure(client, progress, signal, {
    fullName: names.workspace,
    builtFrom: `${project.name} ${project.version} from PyPI, with a bug in ${project.file} (quickstart ${edition})`,
    what: `a workspace: the source of ${project.name} ${project.version} from PyPI, with a bug planted`,
    make: async () => ({ kind: "workspace", directory: await workspaceTree(scratch, signal) }),
  });
  await ensure(client, progress, signal, {
    fullName: names.toolkit,
    builtFrom: `pytest from PyPI, compiled (quickstart ${edition})`,
    what: "a toolkit: pytest",
    make: async () => ({ kind: "toolkit", directory: await toolkitTree(scratch, signal) }),
  });
}

interface Wanted {
  readonly fullName: string;
  readonly builtFrom: string;
  readonly what: string;
  readonly make: () => Promise<Pick<LayerImport, "kind" | "path" | "directory">>;
}

async function ensure(
  client: DSecClient,
  progress: (line: string) => void,
  signal: AbortSignal,
  { fullName, builtFrom, what, make }: Wanted,
): Promise<void> {
  signal.throwIfAborted();
  if ((await builtFromOf(client, fullName)) === builtFrom) return;
  progress(`making ${what}`);
  const [projectPath = "", name = ""] = fullName.split("/");
  const layer = await client.layers.import({ ...(await make()), name, project: projectPath, builtFrom, signal });
  progress(
    `  ${layer.fullName}: ${layer.entries} entries, ${(layer.dataBytes / 1e6).toFixed(1)} MB of data, ${(layer.metadataBytes / 1e3).toFixed(0)} kB of metadata`,
  );
}

async function builtFromOf(client: DSecClient, fullName: string): Promise<string | undefined> {
  try {
    return (await client.layers.get(fullName)).builtFrom;
  } catch (error) {
    if (error instanceof DsecError && error.reason === "LAYER_NOT_FOUND") return undefined;
    throw error;
  }
}
