// python: creates, round trips and transfers with the Python library, each beside the TypeScript library's in the same run.
import { type ExecFileOptions, execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { BenchDocument, median, progress, quantile } from "./support/document.ts";
import { libraryClient } from "./support/library-client.ts";
import { options } from "./support/options.ts";
import { BenchPlatform } from "./support/platform.ts";
import { seeded } from "./support/run.ts";

if (process.argv[2] === "client") {
  const [what = "", count = "0", source = "", back = ""] = process.argv.slice(3);
  await libraryClient(what, Number(count), source, back);
} else await bench();

async function bench(): Promise<void> {
  const { json, quick, seed } = options();
  const document = new BenchDocument("python");
  await using platform = await BenchPlatform.start();
  await platform.environment();
  const creates = quick ? 100 : 2000;
  const execs = quick ? 100 : 2000;
  const fileBytes = quick ? 2 ** 23 : 2 ** 28;
  const treeFiles = quick ? 500 : 10_000;
  const large = join(platform.dir, "large");
  await writeFile(large, randomBytes(fileBytes));
  const tree = join(platform.dir, "tree");
  await makeTree(tree, treeFiles, seed);

  const env = {
    ...process.env,
    DSEC_ENDPOINT: platform.client.endpoint,
    XDG_CONFIG_HOME: join(platform.dir, "config"),
    PYTHONPATH: join(import.meta.dirname, "../python/libdsec/src"),
    PYTHONDONTWRITEBYTECODE: "1",
  };
  const python = ["python3", join(import.meta.dirname, "support/library_client.py")];
  const typescript = [process.execPath, "--disable-warning=ExperimentalWarning", import.meta.filename, "client"];
  const programs = { python, typescript };
  const found = { python: new Map<string, number[]>(), typescript: new Map<string, number[]>() };

  for (let round = 0; round < (quick ? 1 : 3); round++) {
    const order = ["python", "typescript"] as const;
    for (const who of round % 2 === 0 ? order : order.toReversed()) {
      const note = (name: string, value: number) => void found[who].set(name, [...(found[who].get(name) ?? []), value]);
      const [seconds = Number.NaN] = await measured(programs[who], env, "create", creates);
      note("create", creates / seconds);
      note("exec", quantile(await measured(programs[who], env, "exec", execs), 0.5) * 1000);
      for (const [what, source] of Object.entries({ file: large, tree })) {
        // Removed with the platform: ext4 is slow to make files where many were removed a moment ago.
        const back = join(platform.dir, `back-${who}-${what}-${round}`);
        const [up = Number.NaN, down = Number.NaN] = await measured(programs[who], env, what, 0, source, back);
        note(`${what}.up`, what === "file" ? fileBytes / 1e6 / up : treeFiles / up);
        note(`${what}.down`, what === "file" ? fileBytes / 1e6 / down : treeFiles / down);
      }
    }
    progress(`round ${round + 1} done`);
  }

  const of = (who: "python" | "typescript", name: string) => median(found[who].get(name) ?? []);
  const ratio = (name: string) => of("python", name) / of("typescript", name);
  document.add("python.exec.p50", of("python", "exec"), "ms", "< 5");
  document.add("python.exec.p50.typescript", of("typescript", "exec"), "ms");
  document.add("python.create.rate", of("python", "create"), "1/s");
  document.add("python.create.rate.typescript", of("typescript", "create"), "1/s");
  document.add("python.create.ratio", ratio("create"), "ratio", ">= 0.8");
  const ways = ["file.up", "file.down", "tree.up", "tree.down"];
  for (const way of ways) {
    const unit = way.startsWith("file") ? "MB/s" : "1/s";
    document.add(`python.${way}.rate`, of("python", way), unit);
    document.add(`python.${way}.rate.typescript`, of("typescript", way), unit);
    document.add(`python.${way}.ratio`, ratio(way), "ratio");
  }
  document.add("python.transfer.ratio", Math.min(...ways.map(ratio)), "ratio", ">= 0.6");
  document.print(json);
}

/** Files of 0.5 to 8 KiB in directories of 100. */
async function makeTree(root: string, files: number, seed: number): Promise<void> {
  const random = seeded(seed);
  for (let i = 0; i < files; i++) {
    const directory = join(root, `d${Math.floor(i / 100)}`);
    if (i % 100 === 0) await mkdir(directory, { recursive: true });
    await writeFile(join(directory, `f${i}`), randomBytes(512 + Math.floor(random() * 7680)));
  }
}

async function measured(
  [file = "", ...args]: string[],
  env: NodeJS.ProcessEnv,
  what: string,
  count: number,
  source = "",
  back = "",
): Promise<number[]> {
  const run: ExecFileOptions = { env, maxBuffer: 2 ** 24 };
  const { stdout } = await promisify(execFile)(file, [...args, what, String(count), source, back], run);
  return JSON.parse(String(stdout));
}
