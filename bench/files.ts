// files: one large file and a tree of small ones, up and down, content checked; beside `docker cp`.
import { createHash, randomBytes } from "node:crypto";
import { createReadStream } from "node:fs";
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { Docker } from "./support/docker.ts";
import { BenchDocument, median, progress } from "./support/document.ts";
import { options } from "./support/options.ts";
import { BenchPlatform, environment } from "./support/platform.ts";
import { seeded } from "./support/run.ts";

const { json, quick, seed } = options();
const document = new BenchDocument("files");
await using platform = await BenchPlatform.start();
const { tar } = await platform.environment();

const fileBytes = quick ? 2 ** 23 : 2 ** 28;
const treeFiles = quick ? 500 : 10_000;
const source = join(platform.dir, "source");
await mkdir(source);
await writeFile(join(source, "large"), randomBytes(fileBytes));
const treeBytes = await makeTree(join(source, "tree"));
const wanted = { large: await digestOf(join(source, "large")), tree: await digestOfTree(join(source, "tree")) };

/** Files of 0.5 to 8 KiB in directories of 100. */
async function makeTree(root: string): Promise<number> {
  const random = seeded(seed);
  let bytes = 0;
  for (let i = 0; i < treeFiles; i++) {
    const directory = join(root, `d${Math.floor(i / 100)}`);
    if (i % 100 === 0) await mkdir(directory, { recursive: true });
    const size = 512 + Math.floor(random() * 7680);
    await writeFile(join(directory, `f${i}`), randomBytes(size));
    bytes += size;
  }
  return bytes;
}

async function digestOf(path: string): Promise<string> {
  const hash = createHash("sha256");
  await pipeline(createReadStream(path, { highWaterMark: 2 ** 20 }), hash);
  return hash.digest("hex");
}

async function digestOfTree(root: string): Promise<string> {
  const hash = createHash("sha256");
  const entries = await readdir(root, { recursive: true, withFileTypes: true });
  const files = entries.filter((e) => e.isFile()).map((e) => join(e.parentPath, e.name));
  for (const path of files.sort()) hash.update(path.slice(root.length)).update(await readFile(path));
  return hash.digest("hex");
}

interface Way {
  up(from: string, to: string): Promise<void>;
  down(from: string, to: string): Promise<void>;
}

const times = new Map<string, number[]>();
async function timed(name: string, work: () => Promise<void>): Promise<void> {
  const start = performance.now();
  await work();
  times.set(name, [...(times.get(name) ?? []), (performance.now() - start) / 1000]);
}

async function round(who: string, way: Way, index: number): Promise<void> {
  const back = join(platform.dir, `back-${who}-${index}`);
  await mkdir(back);
  await timed(`${who}.file.up`, () => way.up(join(source, "large"), `/tmp/large${index}`));
  await timed(`${who}.file.down`, () => way.down(`/tmp/large${index}`, join(back, "large")));
  await timed(`${who}.tree.up`, () => way.up(join(source, "tree"), `/tmp/tree${index}`));
  await timed(`${who}.tree.down`, () => way.down(`/tmp/tree${index}`, join(back, "tree")));
  if ((await digestOf(join(back, "large"))) !== wanted.large) throw new Error(`${who}: the file came back changed`);
  if ((await digestOfTree(join(back, "tree"))) !== wanted.tree) throw new Error(`${who}: the tree came back changed`);
  await rm(back, { recursive: true });
}

await using sandbox = await platform.client.runContainer(environment);
const ours: Way = {
  up: async (from, to) => void (await sandbox.files.upload(from, to)),
  down: async (from, to) => void (await sandbox.files.download(from, to)),
};
await using docker = await Docker.start();
let theirs: Way | undefined;
if (docker) {
  await docker.importImage(tar, "bench");
  await docker.docker("run", "-d", "--net", "none", "--name", "files", "bench", "/bin/sleep", "100000");
  theirs = {
    up: async (from, to) => void (await docker.docker("cp", from, `files:${to}`)),
    down: async (from, to) => void (await docker.docker("cp", `files:${from}`, to)),
  };
}
for (let i = 0; i < (quick ? 1 : 3); i++) {
  const turns: [string, Way][] = [["ours", ours]];
  if (theirs) turns.push(["docker", theirs]);
  for (const [who, way] of i % 2 === 0 ? turns : turns.reverse()) await round(who, way, i);
  progress(`round ${i + 1} done`);
}
if (docker) await docker.docker("rm", "-f", "files");

for (const what of ["file", "tree"]) {
  const bytes = what === "file" ? fileBytes : treeBytes;
  for (const way of ["up", "down"]) {
    const mine = median(times.get(`ours.${what}.${way}`) ?? []);
    document.add(`files.${what}.${way}.rate`, bytes / 1e6 / mine, "MB/s");
    if (what === "tree") document.add(`files.tree.${way}.files`, treeFiles / mine, "1/s");
    const rival = times.get(`docker.${what}.${way}`);
    if (!rival) continue;
    document.add(`files.${what}.${way}.rate.docker`, bytes / 1e6 / median(rival), "MB/s");
    document.add(`files.${what}.${way}.ratio.docker`, median(rival) / mine, "ratio");
  }
}
document.print(json);
