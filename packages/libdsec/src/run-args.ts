// What may be asked of a container, in this library's words, and the request it becomes.
import type { MessageInitShape } from "@bufbuild/protobuf";
import { type CreateSandboxRequestSchema, DsecError, randomBase32 } from "@dsec/api";
import { toBytes, wholeNumber } from "./command-options.ts";

/** Service ("npm", "pypi", "crates", "go", "debian", "maven") or domain ("*.example.org:443") → allowed. */
export type NetworkRules = Record<string, boolean>;

export interface StartCommand {
  /** One of the two. */
  argv?: readonly (string | Uint8Array)[] | undefined;
  shell?: string | undefined;
  /** Shell text that exits with 0 when it is ready; create waits for it. */
  readyProbe?: string | undefined;
}

export interface ContainerRunArgs {
  /** "name", "name@v3", "project/name@v3", "public/name" or "sha256:…" of a base or an imported image. */
  containerImage: string;
  workspace?: string | undefined;
  /** Lowest first. */
  toolkits?: readonly string[] | undefined;
  /** MiB. Ceilings, not reservations; absent: the default of the page on defaults. */
  memoryLimitMb?: number | undefined;
  diskLimitMb?: number | undefined;
  pidsLimit?: number | undefined;
  /** Cores; absent: no ceiling, only a weight. */
  cpuCoresLimit?: number | undefined;
  /** What placement and quotas count. Default: the smaller of 32 MiB and the limit; 0.02 cores. */
  memoryRequestMb?: number | undefined;
  cpuCoresRequest?: number | undefined;
  env?: Record<string, string> | undefined;
  /** The same, but in no info, event or log. */
  secretEnv?: Record<string, string> | undefined;
  /** Name or number. Default: the image's, else root. */
  initUser?: string | undefined;
  workingDir?: string | undefined;
  hostname?: string | undefined;
  networkRules?: NetworkRules | undefined;
  labels?: Record<string, string> | undefined;
  job?: string | undefined;
  /** Milliseconds of whole life. Default 24 h. */
  ttlMs?: number | undefined;
  /** Milliseconds without use after which it is stopped. Default: none. */
  ttlRunningStopMs?: number | undefined;
  /** What cannot be honoured is an error instead of a notice. */
  strict?: boolean | undefined;
  /** Run in the background once ready. The image's entry point never is. */
  startCommand?: StartCommand | undefined;
  /** "native" (default) or "runc". */
  runtime?: "native" | "runc" | undefined;
  nestedUserNamespaces?: boolean | undefined;
  noNewPrivs?: boolean | undefined;
  /** Path of a project at or below the key's own. Default: the key's own. */
  project?: string | undefined;
}

export interface CreateOptions {
  /** Milliseconds until it must be ready, waiting for capacity included. Default 120,000. */
  timeoutMs?: number | undefined;
  signal?: AbortSignal | undefined;
  /** [A-Za-z0-9_-]{8,64}. The same key never makes two sandboxes. Default: a random one. */
  createKey?: string | undefined;
  /** Wait for quota as for capacity, instead of failing with QUOTA_EXCEEDED. */
  waitForQuota?: boolean | undefined;
}

export type CreateRequest = MessageInitShape<typeof CreateSandboxRequestSchema>;

export function newCreateKey(): string {
  return `k${randomBase32(26)}`;
}

/** The request without key, deadline and retry. @throws DsecError INVALID_ARGUMENT */
export function createRequest(args: ContainerRunArgs): CreateRequest {
  if (typeof args.containerImage !== "string" || args.containerImage === "") {
    throw new DsecError("INVALID_ARGUMENT", "containerImage is missing; it names a base or an imported image");
  }
  const start = args.startCommand;
  return {
    project: args.project ?? "",
    labels: args.labels ?? {},
    job: args.job ?? "",
    ttlMs: limit(args.ttlMs, "ttlMs"),
    idleMs: limit(args.ttlRunningStopMs, "ttlRunningStopMs"),
    strict: args.strict ?? false,
    backend: {
      case: "container",
      value: {
        image: args.containerImage,
        workspace: args.workspace ?? "",
        toolkits: [...(args.toolkits ?? [])],
        memoryLimitMb: limit(args.memoryLimitMb, "memoryLimitMb"),
        diskLimitMb: limit(args.diskLimitMb, "diskLimitMb"),
        pidsLimit: Number(limit(args.pidsLimit, "pidsLimit")),
        cpuCoresLimit: cores(args.cpuCoresLimit, "cpuCoresLimit"),
        memoryRequestMb: limit(args.memoryRequestMb, "memoryRequestMb"),
        cpuCoresRequest: cores(args.cpuCoresRequest, "cpuCoresRequest"),
        env: args.env ?? {},
        secretEnv: args.secretEnv ?? {},
        initUser: args.initUser ?? "",
        workingDir: args.workingDir ?? "",
        hostname: args.hostname ?? "",
        ...(args.networkRules && { networkRules: { allow: args.networkRules } }),
        runtime: args.runtime ?? "",
        nestedUserNamespaces: args.nestedUserNamespaces ?? false,
        noNewPrivs: args.noNewPrivs ?? false,
        ...(start && {
          startCommand: {
            argv: (start.argv ?? []).map(toBytes),
            shell: start.shell ?? "",
            readyProbe: start.readyProbe ?? "",
          },
        }),
      },
    },
  };
}

/** 0 on the wire means "the default", so a caller's 0 cannot be told from nothing there: refused here. */
function limit(value: number | undefined, name: string): bigint {
  if (value === 0) throw new DsecError("INVALID_LIMIT", `${name} is 0; leave it out for the default`);
  return wholeNumber(value, name);
}

function cores(value: number | undefined, name: string): number {
  if (value === undefined) return 0;
  if (!Number.isFinite(value) || value <= 0)
    throw new DsecError("INVALID_LIMIT", `${name} is ${value}; it must be above 0`);
  return value;
}
