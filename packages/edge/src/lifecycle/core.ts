// What the parts of the lifecycle share: the node, the channels, and what is known of its sandboxes.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { HostdInfoReply } from "@dsec/api";
import { Ledger } from "../admission/ledger.ts";
import type { NodeMeter } from "../admission/node.ts";
import { StartQueue } from "../admission/start-queue.ts";
import type { Clock } from "../clock.ts";
import { node } from "../defaults.ts";
import { HostdClient } from "../hostd/client.ts";
import type { Logger } from "../log.ts";
import { CreateKeys } from "../sandboxes/create-keys.ts";
import { Journal } from "../sandboxes/journal.ts";
import { RecordStore } from "../sandboxes/record.ts";
import { Registry } from "../sandboxes/registry.ts";
import { Tombstones } from "../sandboxes/tombstones.ts";
import type { Settings } from "../settings.ts";

export class Core {
  readonly settings: Settings;
  readonly clock: Clock;
  readonly log: Logger;
  readonly bootId: string;
  readonly meter: NodeMeter;
  readonly ledger: Ledger;
  readonly queue: StartQueue;
  readonly hostd: HostdClient;
  readonly journal: Journal;
  readonly keys: CreateKeys;
  readonly tombstones: Tombstones;
  readonly records: RecordStore;
  readonly registry: Registry;
  readonly startedAtMs: number;
  /** What hostd said of the node; absent until it was reached. */
  hostdInfo: HostdInfoReply | undefined;

  constructor(settings: Settings, clock: Clock, log: Logger, bootId: string, meter: NodeMeter) {
    this.settings = settings;
    this.clock = clock;
    this.log = log;
    this.bootId = bootId;
    this.meter = meter;
    this.startedAtMs = clock.wallMs();
    const dir = join(settings.dataDir, "edges", settings.edge);
    mkdirSync(join(dir, "sandboxes"), { recursive: true, mode: 0o700 });
    this.ledger = new Ledger(settings, meter);
    this.queue = new StartQueue(settings.startLimit, node.startQueue, clock);
    this.hostd = new HostdClient(join(settings.runDir, "hostd.sock"), log);
    this.journal = new Journal(join(dir, "journal"));
    this.keys = new CreateKeys(this.journal);
    this.tombstones = new Tombstones(this.journal);
    this.records = new RecordStore(join(dir, "sandboxes"));
    this.registry = new Registry(this.tombstones);
  }

  socketPath(slot: number): string {
    return join(this.settings.runDir, String(slot), "aether.sock");
  }

  /** Forgets what is too old and rewrites the journal where most of it is stale. */
  tidy(): void {
    const now = this.clock.wallMs();
    this.tombstones.forgetOld(now);
    this.keys.forgetOld(now);
    if (!this.journal.needsCompaction(this.keys.size + this.tombstones.size)) return;
    const { keys, tombstones } = this;
    this.journal.compact(
      (function* () {
        yield* keys.lines();
        yield* tombstones.lines();
      })(),
    );
  }
}
