// `runc run` of a bundle with an overlay a container, 32 in flight, as a yardstick.
import { execFile } from "node:child_process";
import { mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { progress } from "./document.ts";
import { inFlight } from "./run.ts";

const run = promisify(execFile);

/** Containers made, run (/bin/true) and removed a second; undefined, with the reason on stderr, where runc cannot run. */
export async function runcRate(tar: string, dir: string, forMs: number): Promise<number | undefined> {
  const work = join(dir, "runc");
  try {
    await mkdir(join(work, "root"), { recursive: true });
    await run("tar", ["-xf", tar, "-C", join(work, "root")]);
    await run("runc", ["spec"], { cwd: work });
    const once = (i: number) => containerOnce(work, i);
    await once(-1);
    const { done, seconds } = await inFlight(32, { untilMs: performance.now() + forMs }, once);
    return done / seconds;
  } catch (error) {
    progress(`runc is left out: ${error instanceof Error ? error.message : String(error)}`);
    return undefined;
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

async function containerOnce(work: string, index: number): Promise<void> {
  const bundle = join(work, `c${index}`);
  for (const part of ["rootfs", "upper", "work"]) await mkdir(join(bundle, part), { recursive: true });
  const { stdout } = await run("cat", [join(work, "config.json")]);
  const spec = JSON.parse(stdout);
  spec.process.terminal = false;
  spec.process.args = ["/bin/true"];
  // A missing CAP_SYS_RESOURCE on the machine would refuse to raise a limit.
  delete spec.process.rlimits;
  await writeFile(join(bundle, "config.json"), JSON.stringify(spec));
  const layers = `lowerdir=${work}/root,upperdir=${bundle}/upper,workdir=${bundle}/work`;
  await run("mount", ["-t", "overlay", "overlay", "-o", layers, join(bundle, "rootfs")]);
  try {
    await run("runc", ["--root", join(work, "state"), "run", "--bundle", bundle, `bench${process.pid}-${index}`]);
  } finally {
    await run("umount", [join(bundle, "rootfs")]);
    await rm(bundle, { recursive: true, force: true });
  }
}
