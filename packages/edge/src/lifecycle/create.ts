// From a request to a sandbox that has answered a command; a failure in any step leaves nothing.
import { DsecError, type EdgeCreateRequest, EndReason, printable, randomBase32, SandboxState } from "@dsec/api";
import { cpuWeight, makePlan, type Plan, refuseNotices } from "../admission/plan.ts";
import { isAtOrBelow, type Principal } from "../auth/principal.ts";
import { defaults } from "../defaults.ts";
import { recordVersion, type SandboxRecord } from "../sandboxes/record.ts";
import { Sandbox } from "../sandboxes/sandbox.ts";
import { endedError } from "../sandboxes/tombstones.ts";
import type { Attacher } from "./attach.ts";
import type { Core } from "./core.ts";
import type { Ender } from "./end.ts";
import { runStartCommand } from "./start-command.ts";
import { within } from "./within.ts";

const keyForm = /^[A-Za-z0-9_-]{8,64}$/;
const digestForm = /^sha256:[0-9a-f]{64}$/;
const mib = 1024 * 1024;

export interface LayerPresence {
  /** Whether the layer's content is on this node. */
  has(digest: string): boolean | Promise<boolean>;
}

export class Creator {
  private readonly core: Core;
  private readonly ender: Ender;
  private readonly attacher: Attacher;
  private readonly layers: LayerPresence;

  constructor(core: Core, ender: Ender, attacher: Attacher, layers: LayerPresence) {
    this.core = core;
    this.ender = ender;
    this.attacher = attacher;
    this.layers = layers;
  }

  /** The sandbox of this create, made now or by an earlier attempt with the same key. */
  async create(asked: EdgeCreateRequest, principal: Principal): Promise<Sandbox> {
    const { core } = this;
    const request = asked.request;
    if (!request) throw new DsecError("INVALID_ARGUMENT", "request is missing");
    const project = request.project === "" ? principal.project : request.project;
    if (!isAtOrBelow(project, principal.project)) {
      throw new DsecError("PROJECT_NOT_FOUND", `no project "${printable(project)}" at or below ${principal.project}`);
    }
    const key = request.createKey;
    if (key !== "" && !keyForm.test(key)) {
      throw new DsecError("INVALID_ARGUMENT", `create_key is "${printable(key)}"; it must match ${keyForm.source}`);
    }
    const now = core.clock.wallMs();
    const deadline = request.deadlineUnixMs === 0n ? now + defaults.createMs : Number(request.deadlineUnixMs);
    const earlier = () => core.keys.check(project, key, asked.argumentsDigest, Number(asked.attempt));
    const known = earlier();
    if (known !== undefined) return await this.made(known, deadline);
    if (now >= deadline) {
      throw new DsecError(
        "DEADLINE_EXCEEDED",
        `the create's deadline passed ${Math.round(now - deadline)} ms before it arrived`,
      );
    }
    const plan = makePlan(asked, core.meter.size, core.hostdInfo?.diskLimit ?? "");
    await this.checkLayers(asked);
    // Another attempt may have come meanwhile; from here to begin() nothing waits.
    const meanwhile = earlier();
    if (meanwhile !== undefined) return await this.made(meanwhile, deadline);
    core.ledger.admit(project, plan);
    const sandbox = this.enter(asked, plan, project, principal.keyId);
    if (key !== "") core.keys.begin(project, key, asked.argumentsDigest, sandbox.id, now);
    sandbox.making = this.make(sandbox, plan, deadline);
    return await sandbox.making;
  }

  /** The sandbox that an earlier attempt made or makes. */
  private async made(id: string, deadline: number): Promise<Sandbox> {
    const stone = this.core.tombstones.get(id);
    if (stone) throw endedError(stone);
    const sandbox = this.core.registry.byId.get(id);
    if (!sandbox) throw new DsecError("INTERNAL", `the create key names ${id}, which is not known`);
    if (!sandbox.making) return sandbox;
    return await before(deadline, this.core, sandbox.making);
  }

  private async checkLayers(asked: EdgeCreateRequest): Promise<void> {
    if (asked.layers.length === 0)
      throw new DsecError("INVALID_ARGUMENT", "no layer was given; a sandbox needs a base");
    for (const layer of asked.layers) {
      if (!digestForm.test(layer.digest)) {
        throw new DsecError("INVALID_ARGUMENT", `"${printable(layer.digest)}" is no digest of a layer`);
      }
      if (await this.layers.has(layer.digest)) continue;
      throw new DsecError(
        "LAYER_NOT_FOUND",
        `${printable(layer.name)} (${layer.digest}) is not on the node ${this.core.settings.edge}`,
      );
    }
  }

  private enter(asked: EdgeCreateRequest, plan: Plan, project: string, createdBy: string): Sandbox {
    const { core } = this;
    const request = asked.request;
    const now = core.clock.wallMs();
    const record: SandboxRecord = {
      version: recordVersion,
      id: core.settings.edge + randomBase32(20),
      project,
      createdBy,
      createKey: request?.createKey ?? "",
      argumentsDigest: asked.argumentsDigest,
      bootId: core.bootId,
      slot: -1,
      kept: false,
      labels: { ...request?.labels },
      job: request?.job ?? "",
      layers: asked.layers.map(({ kind, digest, name }) => ({ kind, digest, name })),
      notices: plan.notices.map(({ reason, field, message }) => ({ reason, field, message })),
      memoryLimitMb: plan.memoryLimitMb,
      diskLimitMb: plan.diskLimitMb,
      pidsLimit: plan.pidsLimit,
      cpuCoresLimit: plan.cpuCoresLimit,
      memoryRequestMb: plan.memoryRequestMb,
      cpuCoresRequest: plan.cpuCoresRequest,
      networkRules: plan.networkRules,
      networkVersion: 0,
      envNames: plan.environment.names,
      initUser: plan.environment.user,
      workingDir: plan.environment.workingDir,
      createdAtMs: now,
      readyAtMs: 0,
      expiresMono: core.clock.monoMs() + plan.ttlMs,
      idleMs: plan.idleMs,
      keepUntilMono: 0,
      endedAtMs: 0,
      endReason: EndReason.UNSPECIFIED,
      usage: undefined,
      events: [],
    };
    const sandbox = new Sandbox(record, SandboxState.CREATING, core.clock);
    this.attacher.wire(sandbox);
    sandbox.addEvent("CREATED");
    core.registry.add(sandbox);
    return sandbox;
  }

  private async make(sandbox: Sandbox, plan: Plan, deadline: number): Promise<Sandbox> {
    let launching: Promise<void> | undefined;
    try {
      await this.core.queue.run(deadline, () => {
        launching = this.launch(sandbox, plan);
        return before(deadline, this.core, launching);
      });
      if (plan.args.startCommand) {
        await before(deadline, this.core, runStartCommand(sandbox, plan.args.startCommand));
      }
      this.stillWanted(sandbox);
      this.ready(sandbox);
      return sandbox;
    } catch (error) {
      throw await this.undo(sandbox, error, launching);
    } finally {
      sandbox.making = undefined;
    }
  }

  private async launch(sandbox: Sandbox, plan: Plan): Promise<void> {
    const { record } = sandbox;
    const { args, environment } = plan;
    this.stillWanted(sandbox);
    const started = await this.core.hostd.call(
      {
        case: "start",
        value: {
          sandboxId: record.id,
          layers: record.layers.map((layer) => layer.digest),
          memoryLimitBytes: BigInt(record.memoryLimitMb) * BigInt(mib),
          diskLimitBytes: BigInt(record.diskLimitMb) * BigInt(mib),
          pidsLimit: record.pidsLimit,
          cpuWeight: cpuWeight(record.cpuCoresRequest),
          cpuCoresLimit: record.cpuCoresLimit,
          hostname: args.hostname || record.id,
          nestedUserNamespaces: args.nestedUserNamespaces,
          noNewPrivs: args.noNewPrivs,
          runtime: args.runtime,
        },
      },
      "started",
    );
    record.slot = started.slot;
    const known = new Set(record.notices.map((notice) => notice.reason));
    const fresh = started.notices.filter((notice) => !known.has(notice.reason));
    record.notices.push(...fresh.map(({ reason, field, message }) => ({ reason, field, message })));
    if (plan.strict) refuseNotices(fresh);
    this.stillWanted(sandbox);
    const control = this.attacher.open(sandbox);
    await Promise.all([
      control.hello,
      control.call(
        {
          case: "configure",
          value: {
            env: environment.env,
            secretEnv: environment.secretEnv,
            user: environment.user,
            cwd: environment.workingDir,
          },
        },
        "done",
      ),
    ]);
  }

  private ready(sandbox: Sandbox): void {
    const { core } = this;
    sandbox.record.readyAtMs = core.clock.wallMs();
    sandbox.addEvent("READY");
    core.records.save(sandbox.record);
    sandbox.lastUseMono = core.clock.monoMs();
    sandbox.state = SandboxState.RUNNING;
    core.registry.generation++;
  }

  private stillWanted(sandbox: Sandbox): void {
    if (!sandbox.ending && sandbox.state === SandboxState.CREATING) return;
    const stone = this.core.tombstones.get(sandbox.id);
    throw stone
      ? endedError(stone)
      : new DsecError("SANDBOX_ENDED", `the sandbox ${sandbox.id} was stopped while it was made`);
  }

  /** Takes everything back; the error says which. A stop that came meanwhile cleans up by itself. */
  private async undo(sandbox: Sandbox, error: unknown, launching: Promise<void> | undefined): Promise<DsecError> {
    const { core } = this;
    const { record } = sandbox;
    const stone = core.tombstones.get(sandbox.id);
    if (stone) return endedError(stone);
    sandbox.state = SandboxState.STOPPING;
    sandbox.letGo();
    core.records.remove(record.id);
    // A stop must not overtake its start.
    await launching?.catch(() => {});
    if (record.slot >= 0 || outcomeUnknown(error)) await this.ender.stopInHostd(record.id, false);
    core.registry.remove(record.id);
    core.ledger.release(record.project, record);
    if (record.createKey !== "") core.keys.failed(record.project, record.createKey);
    const known = DsecError.from(error);
    core.log.warn({ sandbox: record.id, err: known }, "a create failed");
    if (known.reason === "UNAVAILABLE" || known.reason === "INTERNAL") {
      return new DsecError("LAUNCH_FAILED", `the sandbox's supervisor ended before it was ready: ${known.message}`, {
        cause: known,
      });
    }
    // What was started is gone again: nothing about the outcome is unknown.
    return new DsecError(known.reason, known.message, {
      retryAfterMs: known.retryAfterMs || (known.reason === "CAPACITY_FULL" ? 1000 : 0),
      metadata: { ...known.metadata },
      cause: known,
    });
  }
}

/** hostd may have started it although we have no answer. */
function outcomeUnknown(error: unknown): boolean {
  return !(error instanceof DsecError) || error.outcome === "unknown" || error.reason === "DEADLINE_EXCEEDED";
}

/** Waits for `work` until the deadline (Unix milliseconds), then DEADLINE_EXCEEDED; the work itself goes on. */
function before<T>(deadline: number, core: Core, work: Promise<T>): Promise<T> {
  const late = () => new DsecError("DEADLINE_EXCEEDED", "the sandbox was not ready before the create's deadline");
  return within(deadline - core.clock.wallMs(), work, late);
}
