// CreateSandbox: resolve layers, take from the quota, place, ask an edge. No database row is written.
import { fromBinary } from "@bufbuild/protobuf";
import {
  type ContainerArgs,
  type CreateSandboxRequest,
  DsecError,
  EdgeCreateResponseSchema,
  EdgeService,
  type ImageConfig,
  type ResolvedLayer,
  SandboxService,
} from "@dsec/api";
import type { Amounts, Principal, ProjectLimits } from "@dsec/iam";
import {
  type LayerResolver,
  limitsOf,
  type ProjectStore,
  type QuotaLedger,
  type Reservation,
  StaleCache,
} from "@dsec/iam";
import { type Attempt, chooseNode, type Demand, placementFailure, type RecentPlacements } from "@dsec/placement";
import { EncodedReply } from "@dsec/rpc";
import type { Watcher } from "@dsec/watcher";
import type { Call } from "../call.ts";
import { callEdge, callEdgeEncoded, isAnswered } from "../edges/edge-calls.ts";
import type { Edges } from "../edges/edges.ts";
import { checkCreate, deadlineOf, projectOf, requestsOf } from "./checks.ts";
import { askForKey } from "./create-key.ts";
import { argumentsDigest } from "./digest.ts";

/** What an edge answers when it has done nothing and another may do it. */
const refusals = new Set([
  "CAPACITY_FULL",
  "TOO_MANY_REQUESTS",
  "NEVER_FITS",
  "HOSTD_UNAVAILABLE",
  "UNAVAILABLE",
  "LAYER_NOT_FOUND",
  "NOT_SUPPORTED",
]);
/** Refusals that say how full a node is; any other is worth telling as it is when no node takes the sandbox. */
const capacityReasons = new Set(["CAPACITY_FULL", "TOO_MANY_REQUESTS", "NEVER_FITS"]);
const maxAttempts = 8;

export interface CreateParts {
  readonly edges: Edges;
  readonly projects: ProjectStore;
  readonly resolver: LayerResolver;
  readonly ledger: QuotaLedger;
  readonly recent: RecentPlacements;
  readonly watcher: Watcher;
  readonly sample: number;
  readonly random: () => number;
}

interface Plan {
  readonly request: CreateSandboxRequest;
  readonly layers: readonly ResolvedLayer[];
  readonly config: ImageConfig | undefined;
  readonly digest: string;
  readonly attempt: bigint;
  /** Unix milliseconds. */
  readonly deadlineMs: number;
}

export class Creator {
  readonly #parts: CreateParts;
  readonly #chains = new StaleCache<ProjectLimits[]>(2_000);

  constructor(parts: CreateParts) {
    this.#parts = parts;
  }

  /** Quotas or projects changed here: look again. */
  forgetQuotas(): void {
    this.#chains.clear();
  }

  /** Makes the sandbox and returns the bytes of a CreateSandboxResponse. */
  async create(request: CreateSandboxRequest, call: Call): Promise<EncodedReply> {
    const args = checkCreate(request);
    const now = Date.now();
    call.limitTo(deadlineOf(request, now) - now);
    const deadlineMs = Math.floor(now + call.leftMs);
    const project = projectOf(call.principal, request.project);
    const [chain, resolved] = await Promise.all([this.#chain(project), this.#resolve(call.principal, project, args)]);
    const digest = argumentsDigest(request, project);
    let attempt = 0n;
    if (request.retry) {
      const asked = await askForKey(
        this.#parts.edges,
        { project, createKey: request.createKey, digest, deadlineMs },
        call,
      );
      if (asked.found !== undefined) return asked.found;
      attempt = asked.attempt;
    }
    request.project = project;
    request.deadlineUnixMs = BigInt(deadlineMs);
    const plan: Plan = { request, ...resolved, digest, attempt, deadlineMs };
    const amounts = requestsOf(args);
    const reservation = await this.#reserve(chain, amounts);
    return this.#place(plan, { backend: "container", ...amounts }, reservation, call);
  }

  #chain(project: string): Promise<ProjectLimits[]> {
    return this.#chains.get(project, async () => limitsOf(await this.#parts.projects.chain(project)));
  }

  async #resolve(principal: Principal, project: string, args: ContainerArgs) {
    const one = (kind: "base" | "workspace" | "toolkit", name: string) =>
      this.#parts.resolver.resolve(principal, project, kind, name);
    const [base, workspace, ...toolkits] = await Promise.all([
      one("base", args.image),
      args.workspace === "" ? undefined : one("workspace", args.workspace),
      ...args.toolkits.map((name) => one("toolkit", name)),
    ]);
    const layers = [...base.layers, ...(workspace?.layers ?? []), ...toolkits.flatMap((toolkit) => toolkit.layers)];
    return { layers, config: base.config };
  }

  /** At the limit it asks the edges once more: sandboxes may have ended since the last poll. */
  async #reserve(chain: readonly ProjectLimits[], amounts: Amounts): Promise<Reservation> {
    try {
      return this.#parts.ledger.reserve(chain, amounts);
    } catch (error) {
      if (!(error instanceof DsecError && error.reason === "QUOTA_EXCEEDED")) throw error;
      await this.#parts.watcher.refresh();
      return this.#parts.ledger.reserve(chain, amounts);
    }
  }

  /** Asks one edge after the other until one takes it. Never goes on after an unknown outcome. */
  async #place(plan: Plan, demand: Demand, reservation: Reservation, call: Call): Promise<EncodedReply> {
    const { watcher, recent, sample, random } = this.#parts;
    const tried = new Set<string>();
    const attempts: Attempt[] = [];
    let other: DsecError | undefined;
    let refreshed = false;
    while (tried.size < maxAttempts) {
      const edge = chooseNode(watcher.nodes(), demand, tried, recent.overlays, { k: sample, random });
      if (edge === undefined) {
        if (refreshed || attempts.length > 0) break;
        // Nobody to ask, as far as the last poll knows: a node may just have come back.
        refreshed = true;
        await watcher.refresh();
        continue;
      }
      tried.add(edge);
      reservation.sentTo(edge);
      const placed = recent.place(edge, demand);
      try {
        const reply = await this.#ask(edge, plan, call);
        placed.answered();
        reservation.created();
        if (call.departure.happened && plan.request.createKey === "") this.#stopUnwanted(edge, reply, call);
        return new EncodedReply(reply);
      } catch (error) {
        placed.refused();
        if (!(error instanceof DsecError)) {
          reservation.unknown();
          throw error;
        }
        const unknown = error.outcome === "unknown";
        const refused = isAnswered(error) ? refusals.has(error.reason) : error.reason === "EDGE_UNREACHABLE";
        if (error.reason === "EDGE_UNREACHABLE") watcher.suspect(edge);
        if (unknown || !refused) {
          if (unknown) reservation.unknown();
          else reservation.failed();
          throw error;
        }
        if (isAnswered(error) && !capacityReasons.has(error.reason)) other = error;
        attempts.push({ edge, reason: error.reason, retryAfterMs: error.retryAfterMs });
      }
    }
    reservation.failed();
    const onlyOther = attempts.length > 0 && attempts.every((attempt) => attempt.reason === other?.reason);
    throw onlyOther && other !== undefined ? other : placementFailure(watcher.nodes(), demand, attempts);
  }

  #ask(edge: string, plan: Plan, call: Call): Promise<Buffer> {
    return callEdgeEncoded(
      this.#parts.edges.get(edge),
      EdgeService.method.edgeCreate,
      {
        request: plan.request,
        layers: [...plan.layers],
        ...(plan.config === undefined ? {} : { config: plan.config }),
        argumentsDigest: plan.digest,
        attempt: plan.attempt,
      },
      { token: call.token, requestId: call.requestId, timeoutMs: plan.deadlineMs - Date.now() },
    );
  }

  /** Nobody can find a sandbox whose caller has gone and gave no key. */
  #stopUnwanted(edge: string, reply: Buffer, call: Call): void {
    const { sandbox } = fromBinary(EdgeCreateResponseSchema, reply);
    if (sandbox === undefined) return;
    const options = { token: call.token, requestId: call.requestId, timeoutMs: 30_000 };
    callEdge(
      this.#parts.edges.get(edge),
      SandboxService.method.stopSandbox,
      { sandboxId: sandbox.sandboxId },
      options,
    ).catch(() => {});
  }
}
