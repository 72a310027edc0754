// One sandbox of this edge, in memory.
import { create } from "@bufbuild/protobuf";
import { DsecError, EndReason, type Sandbox as SandboxInfo, SandboxSchema, SandboxState } from "@dsec/api";
import type { AetherControl } from "../aether/control.ts";
import { SpareConnections } from "../aether/spares.ts";
import { type Clock, wallOf } from "../clock.ts";
import { retention } from "../defaults.ts";
import { endReasonName } from "./reasons.ts";
import type { SandboxRecord } from "./record.ts";

export class Sandbox {
  readonly record: SandboxRecord;
  state: SandboxState;
  control: AetherControl | undefined;
  /** Of commands that have ended, for the next ones. */
  readonly spares = new SpareConnections();
  socketPath = "";
  /** When the last call into the sandbox began or ended, monotonic milliseconds. */
  lastUseMono: number;
  /** Calls into the sandbox under way, terminals included: they hold the idle time. */
  callsUnderWay = 0;
  /** Set while it is made; calls with the same create key wait for it. */
  making: Promise<Sandbox> | undefined;
  /** Set once its end began; resolves when nothing of it runs any more. */
  ending: Promise<void> | undefined;
  /** Resolves when the end begins, for calls that broke and want to know why. */
  readonly endBegan: Promise<void>;
  tellEndBegan: () => void = () => {};
  /** Told when its aether breaks the rules of the wire on any connection. */
  hostile: (error: Error) => void = () => {};
  /** Whether the writable space is used up; never rejects. Absent where it has no limit. */
  diskIsFull: (() => Promise<boolean>) | undefined;
  private readonly clock: Clock;

  constructor(record: SandboxRecord, state: SandboxState, clock: Clock) {
    this.record = record;
    this.state = state;
    this.clock = clock;
    this.lastUseMono = clock.monoMs();
    this.endBegan = new Promise((resolve) => {
      this.tellEndBegan = resolve;
    });
  }

  get id(): string {
    return this.record.id;
  }

  /** Closes what stands between edge and aether. */
  letGo(): void {
    this.control?.close();
    this.control = undefined;
    this.spares.close();
  }

  /** Marks use, until the returned function is called: no idle end meanwhile. */
  use(): () => void {
    this.lastUseMono = this.clock.monoMs();
    this.callsUnderWay++;
    let done = false;
    return () => {
      if (done) return;
      done = true;
      this.callsUnderWay--;
      this.lastUseMono = this.clock.monoMs();
    };
  }

  /** Throws where the supervisor cannot be reached; for what makes the sandbox, before it is ready. */
  reachable(): AetherControl {
    if (this.control) return this.control;
    throw new DsecError("UNAVAILABLE", `the supervisor of ${this.id} does not answer now`);
  }

  /** Its connection to aether; throws where the state forbids calls. */
  running(): AetherControl {
    if (this.state === SandboxState.RUNNING) return this.reachable();
    const id = this.id;
    if (this.state === SandboxState.CREATING)
      throw new DsecError("SANDBOX_NOT_READY", `the sandbox ${id} is being created`);
    if (this.state === SandboxState.STOPPED) throw new DsecError("SANDBOX_STOPPED", `the sandbox ${id} was stopped`);
    throw new DsecError("SANDBOX_ENDED", `the sandbox ${id} is ending`, {
      metadata: { end_reason: endReasonName(this.record.endReason) },
    });
  }

  addEvent(type: string, message = "", endReason: EndReason = EndReason.UNSPECIFIED): void {
    const { events } = this.record;
    events.push({ atMs: this.clock.wallMs(), type, endReason, message });
    // The first ones (CREATED, READY) stay.
    if (events.length > retention.events) events.splice(2, events.length - retention.events);
  }

  info(edge: string): SandboxInfo {
    const { record, clock } = this;
    const at = (mono: number) => BigInt(mono > 0 ? wallOf(clock, mono) : 0);
    const alive = this.state === SandboxState.RUNNING || this.state === SandboxState.CREATING;
    return create(SandboxSchema, {
      sandboxId: record.id,
      state: this.state,
      project: record.project,
      edge,
      backend: "container",
      labels: record.labels,
      job: record.job,
      createdAtMs: BigInt(record.createdAtMs),
      readyAtMs: BigInt(record.readyAtMs),
      expiresAtMs: at(record.expiresMono),
      idleExpiresAtMs: alive && record.idleMs > 0 ? at(this.lastUseMono + record.idleMs) : 0n,
      endedAtMs: BigInt(record.endedAtMs),
      endReason: record.endReason,
      layers: record.layers.map((layer) => ({ ...layer })),
      notices: record.notices.map((notice) => ({ ...notice })),
      memoryLimitMb: BigInt(record.memoryLimitMb),
      diskLimitMb: BigInt(record.diskLimitMb),
      pidsLimit: record.pidsLimit,
      cpuCoresLimit: record.cpuCoresLimit,
      memoryRequestMb: BigInt(record.memoryRequestMb),
      cpuCoresRequest: record.cpuCoresRequest,
      networkRules: { allow: record.networkRules },
      networkVersion: BigInt(record.networkVersion),
      envNames: [...record.envNames],
      initUser: record.initUser,
      workingDir: record.workingDir,
      createdBy: record.createdBy,
      keepUntilMs: at(record.keepUntilMono),
    });
  }
}
