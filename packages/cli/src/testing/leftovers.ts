import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { allPids, commandLine } from "../up/processes.ts";
import { ownRun, readMarks } from "../up/range-marks.ts";

/** Name of the variable by which the suite knows the processes that it started. */
export const runVariable = "DSEC_TEST_RUN";

/** What the platform can leave on a machine, each by a name that is the same on the next look. */
export interface Traces {
  readonly mounts: Set<string>;
  readonly cgroups: Set<string>;
  readonly networkNamespaces: Set<string>;
  readonly runDirs: Set<string>;
  readonly loops: Set<string>;
}

export function look(): Traces {
  return {
    mounts: new Set(mountsOf("self")),
    cgroups: new Set(cgroups()),
    networkNamespaces: new Set(names("/run/netns").map((name) => `/run/netns/${name}`)),
    runDirs: new Set(
      ["/run", "/dev/shm"].flatMap((base) =>
        names(base)
          .filter((name) => name.startsWith("dsec-"))
          .map((name) => `${base}/${name}`),
      ),
    ),
    loops: new Set(loops()),
  };
}

/**
 * What is there now and was not before, and what carries the mark of this run.
 * @param temporary the suite's own TMPDIR, which must be empty again
 */
export function leftBehind(before: Traces, mark: string, temporary: string): string[] {
  const now = look();
  const others = placesOfOthers(mark);
  const found: string[] = [];
  for (const kind of ["mounts", "cgroups", "networkNamespaces", "runDirs", "loops"] as const) {
    for (const name of now[kind]) {
      if (!before[kind].has(name) && !others.some((place) => name.startsWith(place) || name.endsWith(place)))
        found.push(`${kind}: ${name}`);
    }
  }
  for (const pid of allPids()) {
    if (pid !== process.pid && environmentOf(pid).includes(`${runVariable}=${mark}`))
      found.push(`process: ${pid} ${commandLine(pid)}`);
  }
  for (const name of names(temporary)) {
    // Caches of the tools themselves, not of a test.
    if (!/^(node-compile-cache|v8-compile-cache|rustc|cc)/.test(name)) found.push(`file: ${join(temporary, name)}`);
  }
  return found;
}

/** Ends of cgroups and directories of platforms that this run did not start: those that live, and those of another /run. */
function placesOfOthers(mark: string): string[] {
  const places = readMarks()
    .filter(({ run }) => run !== ownRun())
    .map(({ edge }) => `/dsec/${edge}`);
  for (const pid of allPids()) {
    const args = argumentsOf(pid);
    if (!/(^|\/)hostd$/.test(args[0] ?? "")) continue;
    // The servers have no environment of their caller's; their supervisor does. One without a supervisor is nobody's.
    const parent = parentOf(pid);
    if (!/\/(supervisor|launcher)-main\.ts\b/.test(argumentsOf(parent).join(" "))) continue;
    if (environmentOf(parent).includes(`${runVariable}=${mark}`)) continue;
    const value = (name: string) => args[args.indexOf(name) + 1] ?? "/nowhere";
    places.push(`/dsec/${value("--edge")}`, `${value("--data-dir")}/`, dirname(value("--run-dir")));
  }
  return places;
}

function parentOf(pid: number): number {
  try {
    return Number(/^PPid:\t(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? 0);
  } catch {
    return 0;
  }
}

function argumentsOf(pid: number): string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
  } catch {
    return [];
  }
}

function mountsOf(pid: string): string[] {
  return readFileSync(`/proc/${pid}/mountinfo`, "utf8")
    .split("\n")
    .map((line) => line.split(" ")[4] ?? "")
    .filter((point) => /dsec/.test(point));
}

function cgroups(): string[] {
  const roots = ["/sys/fs/cgroup", ...names("/sys/fs/cgroup").map((name) => join("/sys/fs/cgroup", name))];
  return roots.flatMap((root) => names(join(root, "dsec"), true).map((name) => join(root, "dsec", name)));
}

function loops(): string[] {
  return names("/sys/block")
    .filter((name) => name.startsWith("loop"))
    .map((name) => {
      try {
        return readFileSync(`/sys/block/${name}/loop/backing_file`, "utf8").trim();
      } catch {
        return "";
      }
    })
    .filter((file) => /dsec/.test(file));
}

function environmentOf(pid: number): string[] {
  try {
    return readFileSync(`/proc/${pid}/environ`, "utf8").split("\0");
  } catch {
    return [];
  }
}

function names(dir: string, directories = false): string[] {
  try {
    return readdirSync(dir, { withFileTypes: true })
      .filter((entry) => !directories || entry.isDirectory())
      .map((entry) => entry.name);
  } catch {
    return [];
  }
}
