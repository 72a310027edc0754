// What a create asks, checked, with defaults filled in and limits cut to the node.
import { create } from "@bufbuild/protobuf";
import { type ContainerArgs, DsecError, type EdgeCreateRequest, type Notice, NoticeSchema, printable } from "@dsec/api";
import { defaults, maximums, minimums } from "../defaults.ts";
import { checkRules, rulesNotices } from "../network/rules.ts";
import { type Environment, planEnvironment } from "./environment.ts";
import type { NodeSize } from "./node.ts";

export interface Plan {
  readonly memoryLimitMb: number;
  readonly diskLimitMb: number;
  readonly pidsLimit: number;
  readonly cpuCoresLimit: number;
  readonly memoryRequestMb: number;
  readonly cpuCoresRequest: number;
  readonly ttlMs: number;
  readonly idleMs: number;
  readonly hostname: string;
  readonly networkRules: Record<string, boolean>;
  readonly environment: Environment;
  readonly args: ContainerArgs;
  readonly strict: boolean;
  readonly notices: Notice[];
}

const hostname = /^(?!-)[a-z0-9-]{1,63}(?<!-)(\.(?!-)[a-z0-9-]{1,63}(?<!-))*$/i;

/** Throws INVALID_ARGUMENT, INVALID_LIMIT, INVALID_NETWORK_RULE or NOT_STRICT. */
export function makePlan(asked: EdgeCreateRequest, size: NodeSize, diskLimit: string): Plan {
  const request = asked.request;
  if (!request) throw invalid("request is missing");
  if (request.backend.case !== "container") throw invalid("no backend was given; this edge runs containers");
  const args = request.backend.value;
  const notices: Notice[] = [];
  const cut = (name: string, value: number, largest: number, unit: string): number => {
    if (value <= largest) return value;
    notices.push(notice("LIMIT_CUT", `container.${name}`, `${value}${unit} was asked; the node has ${largest}${unit}`));
    return largest;
  };
  checkLimits(args);
  const memoryLimitMb = limit("memory_limit_mb", Number(args.memoryLimitMb), minimums.memoryLimitMb, () =>
    Math.min(defaults.memoryLimitMb, size.memoryMb),
  );
  const diskLimitMb = limit("disk_limit_mb", Number(args.diskLimitMb), minimums.diskLimitMb, () =>
    Math.min(defaults.diskLimitMb, size.diskMb),
  );
  const pidsLimit = limit("pids_limit", args.pidsLimit, minimums.pidsLimit, () => defaults.pidsLimit);
  const cpuCoresLimit = limit(
    "cpu_cores_limit",
    args.cpuCoresLimit,
    minimums.cpuCoresLimit,
    () => defaults.cpuCoresLimit,
  );
  const memory = cut("memory_limit_mb", memoryLimitMb, size.memoryMb, " MiB");
  const allow = { ...args.networkRules?.allow };
  checkRules(allow);
  if (diskLimit === "none") {
    notices.push(
      notice("NO_DISK_LIMIT", "container.disk_limit_mb", "this node cannot limit the writable space of a sandbox"),
    );
  }
  const plan: Plan = {
    memoryLimitMb: memory,
    diskLimitMb: cut("disk_limit_mb", diskLimitMb, size.diskMb, " MiB"),
    pidsLimit: cut("pids_limit", pidsLimit, maximums.pidsLimit, ""),
    cpuCoresLimit: cut("cpu_cores_limit", cpuCoresLimit, size.cpus, " cores"),
    memoryRequestMb: Number(args.memoryRequestMb) || Math.min(defaults.memoryRequestMb, memory),
    cpuCoresRequest: args.cpuCoresRequest || defaults.cpuCoresRequest,
    ttlMs: life("ttl_ms", Number(request.ttlMs), minimums.ttlMs, maximums.ttlMs, defaults.ttlMs),
    idleMs: life("idle_ms", Number(request.idleMs), minimums.idleMs, maximums.idleMs, defaults.idleMs),
    hostname: args.hostname,
    networkRules: allow,
    environment: planEnvironment(args, asked.config),
    args,
    strict: request.strict,
    notices,
  };
  notices.push(...rulesNotices(allow, "container.network_rules"));
  checkNames(args, request.labels, request.job);
  if (request.strict) refuseNotices(notices);
  return plan;
}

/** With strict, a notice is an error. */
export function refuseNotices(notices: readonly Notice[]): void {
  const first = notices[0];
  if (!first) return;
  throw new DsecError("NOT_STRICT", `${first.field}: ${first.message}`, {
    metadata: { notices: notices.map((n) => n.reason).join(",") },
  });
}

/** cgroup v2's scale, 1 to 10000: 100 for the default request, in proportion above and below. */
export function cpuWeight(cpuCoresRequest: number): number {
  return Math.min(10_000, Math.max(1, Math.round((100 * cpuCoresRequest) / defaults.cpuCoresRequest)));
}

function checkLimits(args: ContainerArgs): void {
  for (const [name, value] of Object.entries({
    cpu_cores_limit: args.cpuCoresLimit,
    cpu_cores_request: args.cpuCoresRequest,
  })) {
    if (!Number.isFinite(value) || value < 0) throw new DsecError("INVALID_LIMIT", `container.${name} is ${value}`);
  }
}

function limit(name: string, value: number, minimum: number, otherwise: () => number): number {
  if (value === 0) return otherwise();
  if (value < minimum)
    throw new DsecError("INVALID_LIMIT", `container.${name} is ${value}; at least ${minimum} must be`);
  return value;
}

function life(name: string, value: number, minimum: number, maximum: number, otherwise: number): number {
  if (value === 0) return otherwise;
  if (value < minimum) throw new DsecError("INVALID_LIMIT", `${name} is ${value}; at least ${minimum} must be`);
  if (value > maximum) throw new DsecError("INVALID_LIMIT", `${name} is ${value}; at most ${maximum} may be`);
  return value;
}

function checkNames(args: ContainerArgs, labels: Record<string, string>, job: string): void {
  if (args.hostname !== "" && (args.hostname.length > 64 || !hostname.test(args.hostname))) {
    throw invalid(
      `container.hostname is "${printable(args.hostname)}", which is no host name of at most 64 characters`,
    );
  }
  if (!["", "native", "runc"].includes(args.runtime)) {
    throw invalid(`container.runtime is "${printable(args.runtime)}"; "native" and "runc" are known`);
  }
  const count = Object.keys(labels).length;
  if (count > maximums.labels) throw invalid(`${count} labels were given; at most ${maximums.labels} may be`);
  const bytes = Object.entries(labels).reduce((sum, [name, value]) => sum + name.length + value.length, job.length);
  if (bytes > maximums.labelBytes)
    throw invalid(`labels and job have ${bytes} characters; at most ${maximums.labelBytes} may be`);
}

function notice(reason: string, field: string, message: string): Notice {
  return create(NoticeSchema, { reason, field, message });
}

function invalid(message: string): DsecError {
  return new DsecError("INVALID_ARGUMENT", message);
}
