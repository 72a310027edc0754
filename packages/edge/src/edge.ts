// One edge: its parts put together, started and stopped.
import { join } from "node:path";
import { type NodeMeter, ProcMeter } from "./admission/node.ts";
import { PrincipalVerifier } from "./auth/principal.ts";
import { type Clock, readBootId, systemClock } from "./clock.ts";
import { EdgeServer, type LayerImporter } from "./http/server.ts";
import { Attacher } from "./lifecycle/attach.ts";
import { Clocks } from "./lifecycle/clocks.ts";
import { Core } from "./lifecycle/core.ts";
import { Creator } from "./lifecycle/create.ts";
import { Ender } from "./lifecycle/end.ts";
import { Recovery } from "./lifecycle/recover.ts";
import type { Logger } from "./log.ts";
import type { Settings } from "./settings.ts";

const graceMs = 2000;

/** Put in by tests: time, the node's size and use. */
export interface EdgeOptions {
  readonly clock?: Clock;
  readonly meter?: NodeMeter;
  readonly bootId?: string;
}

export class Edge {
  readonly core: Core;
  readonly clocks: Clocks;
  private readonly ender: Ender;
  private readonly recovery: Recovery;
  private readonly server: EdgeServer;

  constructor(settings: Settings, layers: LayerImporter, log: Logger, options: EdgeOptions = {}) {
    const clock = options.clock ?? systemClock;
    const meter = options.meter ?? new ProcMeter(settings.dataDir);
    this.core = new Core(settings, clock, log, options.bootId ?? readBootId(), meter);
    this.ender = new Ender(this.core);
    const attacher = new Attacher(this.core, this.ender);
    this.recovery = new Recovery(this.core, this.ender, attacher);
    this.clocks = new Clocks(this.core, this.ender);
    const creator = new Creator(this.core, this.ender, attacher, layers);
    const verifier = new PrincipalVerifier(settings.principalPublicKeyFile, clock);
    const parts = { core: this.core, ender: this.ender, attacher, creator, verifier, layers };
    this.server = new EdgeServer(parts, join(settings.runDir, "edge.sock"));
  }

  /** Finds the sandboxes of an earlier edge again, then serves. */
  async start(): Promise<void> {
    const { core } = this;
    await this.recovery.recover();
    core.hostd.start({
      onConnected: () => {
        this.recovery.reconcile().catch((error: unknown) => core.log.error({ err: error }, "hostd could not be asked"));
      },
      onDied: (died) => {
        const sandbox = core.registry.byId.get(died.sandboxId);
        if (sandbox) this.ender.lost(sandbox, died.cause);
      },
    });
    this.clocks.start();
    await this.server.listen();
  }

  /** Lets calls under way end for 2 s, then stops serving; sandboxes go on. */
  async stop(): Promise<void> {
    this.clocks.close();
    await this.server.close(graceMs);
    this.ender.close();
    this.core.hostd.close();
    for (const sandbox of this.core.registry.byId.values()) sandbox.letGo();
    this.core.journal.close();
  }
}
