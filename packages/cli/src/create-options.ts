// Options of `create`, `run` and `shell IMAGE`: what a sandbox is made of.
import type { ContainerRunArgs, CreateOptions } from "@dsec/libdsec";
import type { Command } from "commander";
import { count, mebibytes, milliseconds, pair, positive, rule, several } from "./values.ts";

export interface CreateFlags {
  workspace?: string;
  toolkit?: string[];
  memory?: number;
  disk?: number;
  pids?: number;
  cpu?: number;
  memoryRequest?: number;
  cpuRequest?: number;
  env?: Record<string, string>;
  secretEnv?: Record<string, string>;
  user?: string;
  workdir?: string;
  hostname?: string;
  network?: Record<string, boolean>;
  label?: Record<string, string>;
  job?: string;
  ttl?: number;
  idle?: number;
  strict?: boolean;
  runtime?: string;
  nestedUserns?: boolean;
  forbidNewPrivs?: boolean;
  project?: string;
  createTimeout?: number;
  waitForQuota?: boolean;
}

export function withCreateOptions(command: Command): Command {
  return command
    .option("-w, --workspace <layer>", "workspace on top of the image")
    .option("-T, --toolkit <layer>", "toolkit on top of that; several, lowest first", several)
    .option("-m, --memory <size>", "memory limit (512m, 4g)", mebibytes)
    .option("--disk <size>", "disk limit", mebibytes)
    .option("--pids <n>", "limit on processes", count)
    .option("--cpu <cores>", "CPU ceiling in cores", positive)
    .option("--memory-request <size>", "memory that placement and quotas count", mebibytes)
    .option("--cpu-request <cores>", "cores that placement and quotas count", positive)
    .option("-e, --env <NAME=VALUE>", "environment; NAME alone takes ours", pair)
    .option("--secret-env <NAME=VALUE>", "the same, shown nowhere", pair)
    .option("-u, --user <user>", "user of its commands (default: the image's, else root)")
    .option("--workdir <dir>", "working directory")
    .option("--hostname <name>", "host name inside")
    .option("--network <service>", "allow a service or domain (or SERVICE=no)", rule)
    .option("-l, --label <NAME=VALUE>", "label", pair)
    .option("--job <name>", "job that it belongs to")
    .option("--ttl <time>", "whole life (default 24h)", milliseconds)
    .option("--idle <time>", "stop after this time without use", milliseconds)
    .option("--strict", "fail where something cannot be honoured")
    .option("--runtime <name>", "native or runc")
    .option("--nested-userns", "allow user namespaces inside")
    .option("--forbid-new-privs", "setuid programs gain nothing (breaks sudo)")
    .option("--project <path>", "project that it counts for")
    .option("--create-timeout <time>", "time until it must be ready (default 120s)", milliseconds)
    .option("--wait-for-quota", "wait where the quota is used up");
}

export function argsFrom(image: string, flags: CreateFlags): ContainerRunArgs & CreateOptions {
  return {
    containerImage: image,
    workspace: flags.workspace,
    toolkits: flags.toolkit,
    memoryLimitMb: flags.memory,
    diskLimitMb: flags.disk,
    pidsLimit: flags.pids,
    cpuCoresLimit: flags.cpu,
    memoryRequestMb: flags.memoryRequest,
    cpuCoresRequest: flags.cpuRequest,
    env: flags.env,
    secretEnv: flags.secretEnv,
    initUser: flags.user,
    workingDir: flags.workdir,
    hostname: flags.hostname,
    networkRules: flags.network,
    labels: flags.label,
    job: flags.job,
    ttlMs: flags.ttl,
    ttlRunningStopMs: flags.idle,
    strict: flags.strict,
    runtime: flags.runtime as "native" | "runc" | undefined,
    nestedUserNamespaces: flags.nestedUserns,
    noNewPrivs: flags.forbidNewPrivs,
    project: flags.project,
    timeoutMs: flags.createTimeout,
    waitForQuota: flags.waitForQuota,
  };
}
