// Keys of creates: the same key never makes two sandboxes, whatever arrives late, twice or out of order.
import { DsecError } from "@dsec/api";
import { retention } from "../defaults.ts";
import type { Journal, JournalLine } from "./journal.ts";

interface Entry {
  readonly project: string;
  readonly key: string;
  digest: string;
  /** "" while only a mark is known. */
  sandboxId: string;
  /** The highest attempt that asked; 0: none. */
  attempt: number;
  /** Unix milliseconds after which it may be forgotten; Infinity while the sandbox lives. */
  until: number;
  at: number;
}

export class CreateKeys {
  private readonly entries = new Map<string, Entry>();
  /** Of sandboxes that live, by ID. */
  private readonly byId = new Map<string, Entry>();
  private readonly journal: Journal;

  constructor(journal: Journal) {
    this.journal = journal;
  }

  /** The sandbox made with this key ("": none), if any; throws where the key may not be used for this create. */
  check(project: string, key: string, digest: string, attempt: number): string | undefined {
    const entry = key === "" ? undefined : this.entries.get(name(project, key));
    if (!entry) return undefined;
    if (entry.sandboxId !== "") {
      if (entry.digest === digest) return entry.sandboxId;
      throw new DsecError("IDEMPOTENCY_MISMATCH", `the create key ${key} was used before with other arguments`);
    }
    if (entry.attempt !== attempt) {
      throw new DsecError(
        "CREATE_SUPERSEDED",
        `attempt ${attempt} of the create key ${key} came after attempt ${entry.attempt}`,
      );
    }
    return undefined;
  }

  /** Records, before anything is started, that this key makes this sandbox. */
  begin(project: string, key: string, digest: string, sandboxId: string, nowMs: number): void {
    this.journal.append({ t: "key", p: project, k: key, d: digest, i: sandboxId, at: nowMs });
    this.setKey(project, key, digest, sandboxId, nowMs);
  }

  /** The create failed and left nothing; a mark stays. */
  failed(project: string, key: string): void {
    this.journal.append({ t: "fail", p: project, k: key });
    this.dropKey(project, key);
  }

  /** Looks a key up for a retry and marks it, so that an earlier attempt that arrives later is refused. */
  ask(project: string, key: string, attempt: number, nowMs: number): Ask {
    const entry = this.entries.get(name(project, key));
    const highest = entry?.attempt ?? 0;
    if (highest > attempt)
      return { sandboxId: entry?.sandboxId ?? "", digest: entry?.digest ?? "", supersededBy: highest };
    if (highest < attempt) {
      this.journal.append({ t: "mark", p: project, k: key, a: attempt, at: nowMs });
      this.setMark(project, key, attempt, nowMs);
    }
    return { sandboxId: entry?.sandboxId ?? "", digest: entry?.digest ?? "", supersededBy: 0 };
  }

  /** The sandbox ended: its key is kept for an hour more. */
  ended(sandboxId: string, nowMs: number): void {
    const entry = this.byId.get(sandboxId);
    if (!entry) return;
    entry.until = nowMs + retention.createKeyMs;
    this.byId.delete(sandboxId);
  }

  /** Takes a line of the journal in, at the start. */
  replay(line: JournalLine): void {
    if (line.t === "key") this.setKey(line.p, line.k, line.d, line.i, line.at);
    else if (line.t === "fail") this.dropKey(line.p, line.k);
    else if (line.t === "mark") this.setMark(line.p, line.k, line.a, line.at);
    else this.ended(line.i, line.at);
  }

  /** After the replay: forgets keys whose create the edge did not live to finish. Returns the IDs. */
  dropUnfinished(exists: (sandboxId: string) => boolean): string[] {
    const dropped: string[] = [];
    for (const entry of [...this.byId.values()]) {
      if (entry.until !== Number.POSITIVE_INFINITY || exists(entry.sandboxId)) continue;
      dropped.push(entry.sandboxId);
      this.failed(entry.project, entry.key);
    }
    return dropped;
  }

  forgetOld(nowMs: number): void {
    for (const [id, entry] of this.entries) {
      if (entry.until > nowMs) continue;
      this.entries.delete(id);
    }
  }

  get size(): number {
    return this.entries.size;
  }

  *lines(): Iterable<JournalLine> {
    for (const entry of this.entries.values()) {
      if (entry.attempt > 0) yield { t: "mark", p: entry.project, k: entry.key, a: entry.attempt, at: entry.at };
      if (entry.sandboxId === "") continue;
      yield { t: "key", p: entry.project, k: entry.key, d: entry.digest, i: entry.sandboxId, at: entry.at };
    }
  }

  private setKey(project: string, key: string, digest: string, sandboxId: string, at: number): void {
    const entry = this.entry(project, key, at);
    entry.digest = digest;
    entry.sandboxId = sandboxId;
    entry.until = Number.POSITIVE_INFINITY;
    this.byId.set(sandboxId, entry);
  }

  private setMark(project: string, key: string, attempt: number, at: number): void {
    const entry = this.entry(project, key, at);
    entry.attempt = Math.max(entry.attempt, attempt);
    if (entry.sandboxId === "") entry.until = at + retention.createKeyMs;
  }

  private dropKey(project: string, key: string): void {
    const id = name(project, key);
    const entry = this.entries.get(id);
    if (!entry) return;
    this.byId.delete(entry.sandboxId);
    entry.sandboxId = "";
    entry.digest = "";
    entry.until = entry.at + retention.createKeyMs;
    if (entry.attempt === 0) this.entries.delete(id);
  }

  private entry(project: string, key: string, at: number): Entry {
    const id = name(project, key);
    let entry = this.entries.get(id);
    if (!entry) {
      entry = { project, key, digest: "", sandboxId: "", attempt: 0, until: at + retention.createKeyMs, at };
      this.entries.set(id, entry);
    }
    entry.at = at;
    return entry;
  }
}

export interface Ask {
  readonly sandboxId: string;
  readonly digest: string;
  /** A higher attempt asked before; 0: none. */
  readonly supersededBy: number;
}

function name(project: string, key: string): string {
  return `${project}\n${key}`;
}
