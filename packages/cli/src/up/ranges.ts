import { mkdirSync, readFileSync, renameSync, rmdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { DsecError } from "@dsec/api";
import { HeldLock } from "./held-lock.ts";
import { rangesDir } from "./layout.ts";
import { dropMark, readMarks, setMark } from "./range-marks.ts";

/** IDs of a sandbox's user namespace. */
export const idsPerSlot = 65_536;
/** IDs below belong to people, systems and small subuid ranges. */
const firstId = 1 << 20;
/** 2³² − 1 means "no user"; what lies above is not used either. */
const endOfIds = 2 ** 32 - 65_536;

/** One edge's share of the machine: `slots` × 65,536 IDs and then one for each slot's aether. */
export interface Range {
  readonly edge: string;
  readonly uidStart: number;
  readonly slots: number;
  readonly dataDir: string;
}

export interface Span {
  readonly start: number;
  readonly end: number;
}

export function spanOf(range: Pick<Range, "uidStart" | "slots">): Span {
  return { start: range.uidStart, end: range.uidStart + range.slots * (idsPerSlot + 1) };
}

/** First span of `size` IDs that meets none of `taken`, or undefined when there is none. */
export function firstFree(taken: readonly Span[], size: number): number | undefined {
  let at = firstId;
  for (const span of [...taken].sort((a, b) => a.start - b.start)) {
    if (span.end <= at) continue;
    if (span.start >= at + size) break;
    at = Math.ceil(span.end / idsPerSlot) * idsPerSlot;
  }
  return at + size <= endOfIds ? at : undefined;
}

/** What the machine uses already: users, subordinate ranges, and what systemd keeps for foreign images. */
export function takenByMachine(etc = "/etc"): Span[] {
  const taken: Span[] = [{ start: 0x7ffe0000, end: 0x80000000 }];
  for (const line of linesOf(`${etc}/passwd`)) {
    const uid = Number(line.split(":")[2]);
    if (uid >= firstId) taken.push({ start: uid, end: uid + 1 });
  }
  for (const file of ["subuid", "subgid"]) {
    for (const line of linesOf(`${etc}/${file}`)) {
      const [, start, count] = line.split(":").map(Number);
      if (start !== undefined && count !== undefined && count > 0) taken.push({ start, end: start + count });
    }
  }
  return taken;
}

/** Reserves a range for each edge, under one lock for the machine. An edge that holds one keeps it. */
export async function reserveRanges(edges: readonly string[], slots: number, dataDir: string): Promise<Range[]> {
  return await withRanges(async (all) => {
    const mine: Range[] = [];
    for (const edge of edges) {
      const old = all.find((range) => range.edge === edge);
      if (old && old.dataDir !== dataDir) {
        throw new DsecError(
          "DATA_DIR_IN_USE",
          `the edge name "${edge}" of ${dataDir} is in use for ${old.dataDir}: one is a copy of the other`,
        );
      }
      if (old && old.slots >= slots) {
        setMark({ edge, span: spanOf(old) });
        mine.push(old);
        continue;
      }
      if (old) dropMark({ edge, span: spanOf(old) });
      const others = all.filter((range) => range.edge !== edge);
      const size = slots * (idsPerSlot + 1);
      const uidStart = await claim(edge, size, [...takenByMachine(), ...others.map(spanOf)]);
      if (uidStart === undefined) {
        throw new DsecError(
          "NODE_UNFIT",
          `no ${size} user IDs are free for the edge "${edge}": ask for fewer --slots, or end another platform`,
        );
      }
      const made = { edge, uidStart, slots, dataDir };
      all.splice(0, all.length, ...others, made);
      mine.push(made);
    }
    return mine;
  });
}

/**
 * First span that meets neither `taken` nor another edge's mark, and marks it. The lock does not hold between platforms
 * with a /run each, so whoever then sees that two marks meet takes its own back and tries again.
 */
export async function claim(
  edge: string,
  size: number,
  taken: readonly Span[],
  cgroups?: string,
): Promise<number | undefined> {
  const marked = () =>
    readMarks(cgroups)
      .filter((mark) => mark.edge !== edge)
      .map(({ span }) => span);
  for (;;) {
    const start = firstFree([...taken, ...marked()], size);
    if (start === undefined) return undefined;
    const span = { start, end: start + size };
    if (!setMark({ edge, span }, cgroups) || !marked().some((other) => meet(other, span))) return start;
    dropMark({ edge, span }, cgroups);
    await sleep(10 + Math.random() * 200);
  }
}

const meet = (a: Span, b: Span) => a.start < b.end && b.start < a.end;

/** Gives the ranges of a data directory back; only when none of its sandboxes lives. */
export async function releaseRanges(dataDir: string): Promise<void> {
  await withRanges((all) => {
    all.splice(0, all.length, ...all.filter((range) => range.dataDir !== dataDir));
  });
}

export function readRanges(): Range[] {
  try {
    return JSON.parse(readFileSync(join(rangesDir, "ranges.json"), "utf8")) as Range[];
  } catch {
    return [];
  }
}

async function withRanges<T>(change: (all: Range[]) => T | Promise<T>): Promise<T> {
  const lock = await lockRanges();
  if (!lock) throw new DsecError("NODE_UNFIT", `${rangesDir}/ranges.lock was held by another process for 30 s`);
  try {
    const all = readRanges();
    const result = await change(all);
    writeRanges(all);
    return result;
  } finally {
    await lock.release();
  }
}

async function lockRanges(): Promise<HeldLock | undefined> {
  for (let tries = 1; ; tries += 1) {
    try {
      mkdirSync(rangesDir, { recursive: true, mode: 0o755 });
      return await HeldLock.take(join(rangesDir, "ranges.lock"), 30);
    } catch (error) {
      // Removed between the two, by the end of the machine's last platform.
      if ((error as NodeJS.ErrnoException).code !== "ENOENT" || tries === 100) throw error;
    }
  }
}

/** Whole or not at all; nothing where nothing is reserved. By the holder of the lock, whose file goes too. */
function writeRanges(all: readonly Range[]): void {
  const file = join(rangesDir, "ranges.json");
  if (all.length > 0) {
    writeFileSync(`${file}.tmp`, `${JSON.stringify(all, null, 1)}\n`, { mode: 0o644 });
    renameSync(`${file}.tmp`, file);
    return;
  }
  for (const path of [file, join(rangesDir, "ranges.lock")]) rmSync(path, { force: true });
  try {
    rmdirSync(rangesDir);
  } catch {
    // A platform's sockets are there.
  }
}

function linesOf(file: string): string[] {
  try {
    return readFileSync(file, "utf8").split("\n").filter(Boolean);
  } catch {
    return [];
  }
}
