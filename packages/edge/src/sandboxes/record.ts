// What the edge must know of a sandbox after a restart: one small JSON file, renamed into place. No secret is in it.
import { closeSync, openSync, readdirSync, readFileSync, renameSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
import type { EndReason } from "@dsec/api";

export const recordVersion = 1;

export interface LayerRecord {
  readonly kind: string;
  readonly digest: string;
  readonly name: string;
}

export interface NoticeRecord {
  readonly reason: string;
  readonly field: string;
  readonly message: string;
}

export interface EventRecord {
  readonly atMs: number;
  readonly type: string;
  readonly endReason: EndReason;
  readonly message: string;
}

export interface UsageRecord {
  readonly cpuSeconds: number;
  readonly memoryBytes: number;
  readonly peakMemoryBytes: number;
  readonly diskBytes: number;
  readonly processes: number;
  readonly oomKills: number;
  readonly pidsLimitHits: number;
}

/** Times that end in Mono are of the node's monotonic clock, the others Unix; all in milliseconds. */
export interface SandboxRecord {
  readonly version: typeof recordVersion;
  readonly id: string;
  readonly project: string;
  readonly createdBy: string;
  readonly createKey: string;
  readonly argumentsDigest: string;
  readonly bootId: string;
  slot: number;
  kept: boolean;
  readonly labels: Record<string, string>;
  readonly job: string;
  readonly layers: readonly LayerRecord[];
  notices: NoticeRecord[];
  readonly memoryLimitMb: number;
  readonly diskLimitMb: number;
  readonly pidsLimit: number;
  readonly cpuCoresLimit: number;
  readonly memoryRequestMb: number;
  readonly cpuCoresRequest: number;
  networkRules: Record<string, boolean>;
  networkVersion: number;
  readonly envNames: readonly string[];
  readonly initUser: string;
  readonly workingDir: string;
  readonly createdAtMs: number;
  readyAtMs: number;
  expiresMono: number;
  readonly idleMs: number;
  keepUntilMono: number;
  endedAtMs: number;
  endReason: EndReason;
  usage: UsageRecord | undefined;
  events: EventRecord[];
}

/** The directory of sandbox files of one edge. */
export class RecordStore {
  private readonly dir: string;

  constructor(dir: string) {
    this.dir = dir;
  }

  /** Synchronous on purpose: three short system calls cost less than three trips through the thread pool. */
  save(record: SandboxRecord): void {
    const path = this.path(record.id);
    const temporary = `${path}.new`;
    const fd = openSync(temporary, "w", 0o600);
    try {
      writeSync(fd, JSON.stringify(record));
    } finally {
      closeSync(fd);
    }
    renameSync(temporary, path);
  }

  /** The first time, without the detour: a file cut short is of a create that was not answered yet. */
  saveNew(record: SandboxRecord): void {
    const fd = openSync(this.path(record.id), "wx", 0o600);
    try {
      writeSync(fd, JSON.stringify(record));
    } finally {
      closeSync(fd);
    }
  }

  remove(id: string): void {
    rmSync(this.path(id), { force: true });
  }

  /** All records; `bad` are files that are damaged (they are removed) or of another version, by name. */
  load(): { records: SandboxRecord[]; bad: string[] } {
    const records: SandboxRecord[] = [];
    const bad: string[] = [];
    for (const name of readdirSync(this.dir)) {
      if (!name.endsWith(".json")) {
        rmSync(join(this.dir, name), { force: true });
        continue;
      }
      const record = this.read(name);
      if (record) records.push(record);
      else bad.push(name);
    }
    return { records, bad };
  }

  private read(name: string): SandboxRecord | undefined {
    try {
      const record = JSON.parse(readFileSync(join(this.dir, name), "utf8")) as SandboxRecord;
      return record.version === recordVersion && `${record.id}.json` === name ? record : undefined;
    } catch {
      rmSync(join(this.dir, name), { force: true });
      return undefined;
    }
  }

  private path(id: string): string {
    return join(this.dir, `${id}.json`);
  }
}
