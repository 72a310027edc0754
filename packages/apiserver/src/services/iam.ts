import { create } from "@bufbuild/protobuf";
import {
  DsecError,
  type IamService,
  type Key,
  KeySchema,
  type Project,
  ProjectSchema,
  type Quota,
  QuotaSchema,
} from "@dsec/api";
import {
  type Amounts,
  actsIn,
  checkActsIn,
  checkProjectPath,
  isAtOrBelow,
  type KeyRow,
  type KeyStore,
  type Principal,
  type ProjectRow,
  type ProjectStore,
  type QuotaLedger,
  type QuotaLimits,
  quotaOf,
  roleFromProto,
  roleFromText,
  roleToProto,
  rootProject,
} from "@dsec/iam";
import type { Handlers } from "@dsec/rpc";
import type { Watcher } from "@dsec/watcher";
import type { Call } from "../call.ts";

const maxNameLength = 200;
/** Ten years. */
const maxTtlMs = 315_360_000_000;

/** Within which the answer to a key that revoked itself is sent. */
const ownAnswerMs = 200;

export interface IamParts {
  readonly keys: KeyStore;
  readonly projects: ProjectStore;
  readonly ledger: QuotaLedger;
  readonly watcher: Watcher;
  /** Quotas or projects changed. */
  readonly quotasChanged: () => void;
  /** A key was revoked here: end its calls now, not with the next look at the database. */
  readonly keysChanged: () => Promise<void>;
}

export function iamHandlers(parts: IamParts): Handlers<typeof IamService, Call> {
  const { keys, projects, ledger, watcher } = parts;
  const projectMessage = (row: ProjectRow): Project =>
    create(ProjectSchema, {
      path: row.path,
      quota: quotaMessage(quotaOf(row)),
      used: usedMessage(ledger.used(row.path)),
      createdAtMs: BigInt(row.created_at_ms),
    });
  return {
    async whoAmI(_, call) {
      const row = (await keys.find([call.principal.keyId]))[0];
      if (row === undefined) throw new DsecError("UNAUTHENTICATED", "the key is unknown, expired or revoked");
      return { key: keyMessage(row) };
    },

    async createProject(request, call) {
      checkProjectPath(request.path);
      checkBelow(call.principal, request.path);
      const row = await projects.create(request.path, limitsFrom(request.quota));
      parts.quotasChanged();
      return { project: projectMessage(row) };
    },

    async listProjects(request, call) {
      const path = request.path === "" ? call.principal.project : request.path;
      checkProjectPath(path);
      checkActsIn(call.principal, path);
      return { projects: (await projects.list(path)).map(projectMessage) };
    },

    async deleteProject(request, call) {
      checkProjectPath(request.path);
      checkBelow(call.principal, request.path);
      await watcher.refresh();
      const { sandboxes } = ledger.used(request.path);
      if (sandboxes > 0) throw new DsecError("PROJECT_IN_USE", `project "${request.path}" has ${sandboxes} sandboxes`);
      await projects.delete(request.path);
      parts.quotasChanged();
      return {};
    },

    async setQuota(request, call) {
      checkProjectPath(request.path);
      checkActsIn(call.principal, request.path);
      // Its own quota was set from above; only the root has nobody above it.
      if (call.principal.project !== rootProject) checkBelow(call.principal, request.path);
      const row = await projects.setQuota(request.path, limitsFrom(request.quota));
      parts.quotasChanged();
      return { project: projectMessage(row) };
    },

    async createKey(request, call) {
      const project = request.project === "" ? call.principal.project : request.project;
      checkProjectPath(project);
      checkActsIn(call.principal, project);
      if (request.name.length > maxNameLength || hasControl(request.name)) {
        throw new DsecError(
          "INVALID_ARGUMENT",
          `the key's name is longer than ${maxNameLength} or holds control characters`,
        );
      }
      if (request.ttlMs > maxTtlMs)
        throw new DsecError("INVALID_ARGUMENT", "ttl_ms is more than ten years; 0 is no end");
      const role = roleFromProto(request.role);
      const { row, secret } = await keys.create({ project, role, name: request.name, ttlMs: Number(request.ttlMs) });
      return { key: keyMessage(row), secret };
    },

    async listKeys(request, call) {
      const project = request.project === "" ? call.principal.project : request.project;
      checkProjectPath(project);
      checkActsIn(call.principal, project);
      return { keys: (await keys.list(project)).map(keyMessage) };
    },

    async revokeKey(request, call) {
      await keys.revoke(request.keyId, (project) => actsIn(call.principal, project));
      // A key that revokes itself still gets its answer; should the look fail then, the next one is a moment away.
      const look = () => void parts.keysChanged().catch(() => {});
      if (request.keyId === call.principal.keyId) setTimeout(look, ownAnswerMs).unref();
      else await parts.keysChanged();
      return {};
    },
  };
}

/** Strictly below its own: what a project itself may is decided above it. Throws PROJECT_NOT_FOUND, PERMISSION_DENIED. */
function checkBelow(principal: Principal, path: string): void {
  checkActsIn(principal, path);
  if (isAtOrBelow(path, principal.project) && path !== principal.project) return;
  throw new DsecError(
    "PERMISSION_DENIED",
    `a key of "${principal.project}" may do this to projects below it, not to "${path}"`,
  );
}

function hasControl(text: string): boolean {
  for (const char of text) if (char < " " || char === "\u007f") return true;
  return false;
}

function limitsFrom(quota: Quota | undefined): QuotaLimits {
  return {
    sandboxes: quota?.sandboxes,
    cpuCores: quota?.cpuCores,
    memoryMb: quota?.memoryMb === undefined ? undefined : Number(quota.memoryMb),
  };
}

function quotaMessage(limits: QuotaLimits): Quota {
  const quota = create(QuotaSchema);
  if (limits.sandboxes !== undefined) quota.sandboxes = limits.sandboxes;
  if (limits.cpuCores !== undefined) quota.cpuCores = limits.cpuCores;
  if (limits.memoryMb !== undefined) quota.memoryMb = BigInt(limits.memoryMb);
  return quota;
}

function usedMessage(used: Amounts): Quota {
  // Sums of fractions such as 0.02 drift in the last digits.
  const cpuCores = Math.round(used.cpuCores * 1e6) / 1e6;
  return create(QuotaSchema, { sandboxes: used.sandboxes, cpuCores, memoryMb: BigInt(Math.round(used.memoryMb)) });
}

function keyMessage(row: KeyRow): Key {
  return create(KeySchema, {
    keyId: row.id,
    project: row.project,
    role: roleToProto(roleFromText(row.role)),
    name: row.name,
    createdAtMs: BigInt(row.created_at_ms),
    expiresAtMs: BigInt(row.expires_at_ms ?? 0),
    revokedAtMs: BigInt(row.revoked_at_ms ?? 0),
  });
}
