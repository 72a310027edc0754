// What the edge must know of a sandbox after a restart: one small JSON file, renamed into place. No secret is in it.
import {
  closeSync,
  ftruncateSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  unlinkSync,
  writeSync,
} from "node:fs";
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

/** A record's file, and files for later records, are this long or a multiple; JSON takes the spaces at its end. */
const blockBytes = 4096;
const mostSpares = 4096;

/**
 * The directory of sandbox files of one edge. Files of sandboxes that ended are used again: where many were just removed,
 * ext4 takes longer to find room for a new one than everything else that the edge does for a sandbox.
 */
export class RecordStore {
  private readonly dir: string;
  /** Names and sizes of files that hold nothing of use. */
  private readonly spares: { path: string; size: number }[] = [];
  private made = 0;

  constructor(dir: string) {
    this.dir = dir;
  }

  /** Synchronous on purpose: a few short system calls cost less than as many trips through the thread pool. */
  save(record: SandboxRecord): void {
    const text = JSON.stringify(record);
    const size = Math.ceil((Buffer.byteLength(text) + 1) / blockBytes) * blockBytes;
    const bytes = Buffer.alloc(size, 0x20);
    bytes.write(text);
    const spare = this.spares.pop();
    const path = spare?.path ?? this.sparePath();
    const fd = openSync(path, spare ? "r+" : "w", 0o600);
    try {
      for (let at = 0; at < size; ) at += writeSync(fd, bytes, at, size - at, at);
      if (spare && spare.size > size) ftruncateSync(fd, size);
    } finally {
      closeSync(fd);
    }
    renameSync(path, this.path(record.id));
  }

  remove(id: string): void {
    const path = this.path(id);
    try {
      if (this.spares.length >= mostSpares) {
        unlinkSync(path);
        return;
      }
      const spare = this.sparePath();
      renameSync(path, spare);
      this.spares.push({ path: spare, size: statSync(spare).size });
    } catch (error) {
      // It was never written, or is gone already.
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    }
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

  private sparePath(): string {
    this.made++;
    return join(this.dir, `spare-${this.made}`);
  }

  private path(id: string): string {
    return join(this.dir, `${id}.json`);
  }
}
