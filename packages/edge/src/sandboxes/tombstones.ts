// What is left of a sandbox that is gone: ID, project, when and why, for 24 hours.
import { create } from "@bufbuild/protobuf";
import { DsecError, EndReason, type Sandbox, SandboxSchema, SandboxState } from "@dsec/api";
import { retention } from "../defaults.ts";
import type { Journal, JournalLine } from "./journal.ts";
import { endReasonName } from "./reasons.ts";
import type { EventRecord } from "./record.ts";

export interface Tombstone {
  readonly id: string;
  readonly project: string;
  readonly reason: EndReason;
  readonly endedAtMs: number;
  readonly createdAtMs: number;
  /** What is known of the cause. */
  readonly message: string;
}

export class Tombstones {
  /** In order of the end, since a Map keeps the order of insertion. */
  private readonly byId = new Map<string, Tombstone>();
  private readonly journal: Journal;

  constructor(journal: Journal) {
    this.journal = journal;
  }

  get(id: string): Tombstone | undefined {
    return this.byId.get(id);
  }

  add(stone: Tombstone): void {
    this.journal.append(lineOf(stone));
    this.keep(stone);
  }

  replay(line: JournalLine): void {
    if (line.t !== "end") return;
    this.keep({
      id: line.i,
      project: line.p,
      reason: line.r,
      endedAtMs: line.at,
      createdAtMs: line.c,
      message: line.m ?? "",
    });
  }

  forgetOld(nowMs: number): void {
    for (const [id, stone] of this.byId) {
      if (stone.endedAtMs + retention.tombstoneMs > nowMs) return;
      this.byId.delete(id);
    }
  }

  get size(): number {
    return this.byId.size;
  }

  *lines(): Iterable<JournalLine> {
    for (const stone of this.byId.values()) yield lineOf(stone);
  }

  private keep(stone: Tombstone): void {
    this.byId.set(stone.id, stone);
    if (this.byId.size <= retention.tombstones) return;
    const oldest = this.byId.keys().next().value;
    if (oldest !== undefined) this.byId.delete(oldest);
  }
}

function lineOf(stone: Tombstone): JournalLine {
  const line = {
    t: "end",
    i: stone.id,
    p: stone.project,
    r: stone.reason,
    at: stone.endedAtMs,
    c: stone.createdAtMs,
  } as const;
  return stone.message === "" ? line : { ...line, m: stone.message };
}

/** The error of every call to what is gone. */
export function endedError(stone: Tombstone): DsecError {
  const lost = stone.reason === EndReason.LOST || stone.reason === EndReason.NODE_REBOOT;
  const reason = endReasonName(stone.reason);
  const why = stone.message === "" ? "" : `: ${stone.message}`;
  return new DsecError(
    lost ? "SANDBOX_LOST" : "SANDBOX_ENDED",
    `the sandbox ${stone.id} ended at ${new Date(stone.endedAtMs).toISOString()} (${reason})${why}`,
    { metadata: { end_reason: reason, ended_at_ms: String(stone.endedAtMs) } },
  );
}

/** What is still known of its events. */
export function tombstoneEvents({ createdAtMs, endedAtMs, reason, message }: Tombstone): EventRecord[] {
  return [
    { atMs: createdAtMs, type: "CREATED", endReason: EndReason.UNSPECIFIED, message: "" },
    { atMs: endedAtMs, type: "ENDED", endReason: reason, message },
  ];
}

/** What stop answers for a sandbox that is gone already. */
export function tombstoneInfo(stone: Tombstone, edge: string): Sandbox {
  const lost = stone.reason === EndReason.LOST || stone.reason === EndReason.NODE_REBOOT;
  return create(SandboxSchema, {
    sandboxId: stone.id,
    state: lost ? SandboxState.LOST : SandboxState.STOPPED,
    project: stone.project,
    edge,
    backend: "container",
    createdAtMs: BigInt(stone.createdAtMs),
    endedAtMs: BigInt(stone.endedAtMs),
    endReason: stone.reason,
  });
}
