// A sandbox as its edge describes it.
import type { Notice as WireNotice, Sandbox as WireSandbox } from "@dsec/api";
import { endReasonName, stateName } from "./names.ts";
import type { NetworkRules } from "./run-args.ts";

/** What was asked and could not be honoured. */
export interface Notice {
  /** "LIMIT_CUT", "ONLY_LOOPBACK", … */
  reason: string;
  field: string;
  message: string;
}

export interface SandboxInfo {
  id: string;
  /** CREATING, RUNNING, PAUSING, PAUSED, RESUMING, STOPPING, STOPPED, LOST, or one of a newer server. */
  state: string;
  project: string;
  edge: string;
  backend: string;
  labels: Record<string, string>;
  job: string;
  createdAt: Date | null;
  readyAt: Date | null;
  expiresAt: Date | null;
  idleExpiresAt: Date | null;
  endedAt: Date | null;
  keepUntil: Date | null;
  /** "" while it lives: STOPPED, TTL, IDLE, LEASE, OOM, LOST, NODE_REBOOT. */
  endReason: string;
  layers: { kind: string; name: string; digest: string }[];
  notices: Notice[];
  /** MiB; cores; 0: none. */
  memoryLimitMb: number;
  diskLimitMb: number;
  pidsLimit: number;
  cpuCoresLimit: number;
  memoryRequestMb: number;
  cpuCoresRequest: number;
  networkRules: NetworkRules;
  networkVersion: number;
  envNames: string[];
  initUser: string;
  workingDir: string;
  /** ID of the key that made it. */
  createdBy: string;
  /** ID of the sandbox in which it went on, or "". */
  movedTo: string;
}

export const dateOf = (ms: bigint): Date | null => (ms > 0n ? new Date(Number(ms)) : null);

export const noticeOf = ({ reason, field, message }: WireNotice): Notice => ({ reason, field, message });

export function sandboxInfoOf(wire: WireSandbox): SandboxInfo {
  return {
    id: wire.sandboxId,
    state: stateName(wire.state),
    project: wire.project,
    edge: wire.edge,
    backend: wire.backend,
    labels: { ...wire.labels },
    job: wire.job,
    createdAt: dateOf(wire.createdAtMs),
    readyAt: dateOf(wire.readyAtMs),
    expiresAt: dateOf(wire.expiresAtMs),
    idleExpiresAt: dateOf(wire.idleExpiresAtMs),
    endedAt: dateOf(wire.endedAtMs),
    keepUntil: dateOf(wire.keepUntilMs),
    endReason: endReasonName(wire.endReason),
    layers: wire.layers.map(({ kind, name, digest }) => ({ kind, name, digest })),
    notices: wire.notices.map(noticeOf),
    memoryLimitMb: Number(wire.memoryLimitMb),
    diskLimitMb: Number(wire.diskLimitMb),
    pidsLimit: wire.pidsLimit,
    cpuCoresLimit: wire.cpuCoresLimit,
    memoryRequestMb: Number(wire.memoryRequestMb),
    cpuCoresRequest: wire.cpuCoresRequest,
    networkRules: { ...wire.networkRules?.allow },
    networkVersion: Number(wire.networkVersion),
    envNames: wire.envNames,
    initUser: wire.initUser,
    workingDir: wire.workingDir,
    createdBy: wire.createdBy,
    movedTo: wire.movedTo,
  };
}
