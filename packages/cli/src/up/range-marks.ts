// Reserved IDs as seen by platforms that share the kernel but no /run, as in another chroot or container: each edge has an
// empty cgroup dsec/<edge>/ids-START-END-RUN in one hierarchy. It goes with the edge's other cgroups.
import { mkdirSync, readdirSync, rmdirSync, statSync } from "node:fs";
import { join } from "node:path";
import type { Span } from "./ranges.ts";

export interface Mark {
  readonly edge: string;
  readonly span: Span;
  /** Tells the /run of its platform from others. */
  readonly run: string;
}

/** This process's /run: its file system and place there. */
export function ownRun(): string {
  const { dev, ino } = statSync("/run");
  return `${dev}.${ino}`;
}

/** Every hierarchy that is mounted: one of v2, or those of v1. */
function hierarchies(root: string): string[] {
  return [root, ...namesIn(root).map((name) => join(root, name))].filter((dir) =>
    namesIn(dir).includes("cgroup.procs"),
  );
}

/** What all edges on this kernel have reserved, as far as their cgroups are in sight. */
export function readMarks(root = "/sys/fs/cgroup"): Mark[] {
  const marks: Mark[] = [];
  for (const dsec of hierarchies(root).map((dir) => join(dir, "dsec"))) {
    for (const edge of namesIn(dsec)) {
      for (const name of namesIn(join(dsec, edge))) {
        const match = /^ids-(\d{1,10})-(\d{1,10})-([\d.]+)$/.exec(name);
        if (match) marks.push({ edge, span: { start: Number(match[1]), end: Number(match[2]) }, run: match[3] ?? "" });
      }
    }
  }
  return marks;
}

/** Marks a range as an edge's. @returns false where there are no cgroups to write to; then there is nothing to meet either */
export function setMark({ edge, span }: Omit<Mark, "run">, root = "/sys/fs/cgroup"): boolean {
  return hierarchies(root).some((dir) => {
    try {
      mkdirSync(markPath(dir, edge, span), { recursive: true, mode: 0o755 });
      return true;
    } catch {
      return false;
    }
  });
}

export function dropMark({ edge, span }: Omit<Mark, "run">, root = "/sys/fs/cgroup"): void {
  for (const dir of hierarchies(root)) {
    for (const path of [markPath(dir, edge, span), join(dir, "dsec", edge)]) {
      try {
        rmdirSync(path);
      } catch {
        // Not in this hierarchy, or the edge's cgroup is in use.
      }
    }
  }
}

const markPath = (dir: string, edge: string, { start, end }: Span) =>
  join(dir, "dsec", edge, `ids-${start}-${end}-${ownRun()}`);

function namesIn(dir: string): string[] {
  try {
    return readdirSync(dir);
  } catch {
    return [];
  }
}
