// What can be said about a create before anybody is asked.
import { type ContainerArgs, type CreateSandboxRequest, DsecError, printable } from "@dsec/api";
import type { Amounts } from "@dsec/iam";
import { checkActsIn, checkProjectPath, isAtOrBelow, type Principal, publicProject } from "@dsec/iam";

const createKeyPattern = /^[A-Za-z0-9_-]{8,64}$/;
const defaultCpuCores = 0.02;
const defaultMemoryMb = 32;
const defaultDeadlineMs = 120_000;

/** Throws INVALID_ARGUMENT, DEADLINE_EXCEEDED. */
export function checkCreate(request: CreateSandboxRequest): ContainerArgs {
  if (request.backend.case !== "container") {
    throw new DsecError("INVALID_ARGUMENT", "the create names no backend: set container");
  }
  if (request.createKey !== "" && !createKeyPattern.test(request.createKey)) {
    throw new DsecError("INVALID_ARGUMENT", `create_key "${printable(request.createKey)}" is not [A-Za-z0-9_-]{8,64}`);
  }
  if (request.retry && request.createKey === "") {
    throw new DsecError("INVALID_ARGUMENT", "a retry needs the create_key of the first attempt");
  }
  if (request.backend.value.image === "")
    throw new DsecError("INVALID_ARGUMENT", "the create names no image: set container.image");
  return request.backend.value;
}

/** When the create must be ready, Unix milliseconds. Throws DEADLINE_EXCEEDED where that has passed. */
export function deadlineOf(request: CreateSandboxRequest, nowMs: number): number {
  const deadline = request.deadlineUnixMs === 0n ? nowMs + defaultDeadlineMs : Number(request.deadlineUnixMs);
  if (deadline <= nowMs) throw new DsecError("DEADLINE_EXCEEDED", "the create's deadline passed before it arrived");
  return deadline;
}

/** The project that the sandbox will belong to. Throws INVALID_ARGUMENT, PROJECT_NOT_FOUND. */
export function projectOf(principal: Principal, asked: string): string {
  const project = asked === "" ? principal.project : asked;
  checkProjectPath(project);
  checkActsIn(principal, project);
  if (isAtOrBelow(project, publicProject)) {
    throw new DsecError(
      "INVALID_ARGUMENT",
      `"${publicProject}" holds shared layers; sandboxes belong to another project`,
    );
  }
  return project;
}

/** What placement and quotas count: requests, never limits. Throws INVALID_LIMIT. */
export function requestsOf(args: ContainerArgs): Amounts {
  const cpu = args.cpuCoresRequest;
  if (!Number.isFinite(cpu) || cpu < 0)
    throw new DsecError("INVALID_LIMIT", `container.cpu_cores_request is ${cpu}, not a number of cores`);
  const limit = args.memoryLimitMb === 0n ? defaultMemoryMb : Math.min(defaultMemoryMb, Number(args.memoryLimitMb));
  const memoryMb = args.memoryRequestMb === 0n ? limit : Number(args.memoryRequestMb);
  return { sandboxes: 1, cpuCores: cpu === 0 ? defaultCpuCores : cpu, memoryMb };
}
