// Projects, keys and quotas.
import {
  DsecError,
  IamService,
  type Role,
  type Key as WireKey,
  type Project as WireProject,
  type Quota as WireQuota,
} from "@dsec/api";
import { wholeNumber } from "./command-options.ts";
import { roleName, roleNumber } from "./names.ts";
import { dateOf } from "./sandbox-info.ts";
import type { Calls } from "./transport/calls.ts";

/** Absent: no limit of its own; those of the projects above still hold. Counts requests, not limits. */
export interface Quota {
  sandboxes?: number | undefined;
  cpuCores?: number | undefined;
  memoryMb?: number | undefined;
}

export interface Project {
  path: string;
  quota: Quota;
  /** In use now, projects below included. */
  used: Quota;
  createdAt: Date | null;
}

export type RoleName = "viewer" | "developer" | "builder" | "admin";

export interface Key {
  id: string;
  project: string;
  role: string;
  /** Who it is for. */
  name: string;
  createdAt: Date | null;
  expiresAt: Date | null;
  revokedAt: Date | null;
}

export class Projects {
  readonly #calls: Calls;

  constructor(calls: Calls) {
    this.#calls = calls;
  }

  async create(path: string, quota: Quota = {}): Promise<Project> {
    const { project } = await this.#calls.call(
      IamService.method.createProject,
      { path, quota: wireQuota(quota) },
      { harmless: false },
    );
    return projectOf(project, path);
  }

  /** Projects at and below the path (default: the key's own). */
  async list(path = ""): Promise<Project[]> {
    const { projects } = await this.#calls.call(IamService.method.listProjects, { path });
    return projects.map((project) => projectOf(project, project.path));
  }

  /** @throws DsecError PROJECT_IN_USE, saying by what */
  async delete(path: string): Promise<void> {
    await this.#calls.call(IamService.method.deleteProject, { path }, { harmless: false });
  }

  /** Replaces the whole quota: what is absent is unlimited. */
  async setQuota(path: string, quota: Quota): Promise<Project> {
    const { project } = await this.#calls.call(IamService.method.setQuota, { path, quota: wireQuota(quota) });
    return projectOf(project, path);
  }
}

export class Keys {
  readonly #calls: Calls;

  constructor(calls: Calls) {
    this.#calls = calls;
  }

  /** The secret is in this answer alone. */
  async create(
    options: { project?: string; role?: RoleName; name?: string; ttlMs?: number } = {},
  ): Promise<{ key: Key; secret: string }> {
    const role = roleNumber(options.role ?? "developer") as Role | undefined;
    if (!role)
      throw new DsecError(
        "INVALID_ARGUMENT",
        `${JSON.stringify(options.role)} is no role: viewer, developer, builder, admin`,
      );
    const reply = await this.#calls.call(
      IamService.method.createKey,
      { project: options.project ?? "", role, name: options.name ?? "", ttlMs: wholeNumber(options.ttlMs, "ttlMs") },
      { harmless: false },
    );
    return { key: keyOf(reply.key), secret: reply.secret };
  }

  async list(project = ""): Promise<Key[]> {
    const { keys } = await this.#calls.call(IamService.method.listKeys, { project });
    return keys.map(keyOf);
  }

  /** Stops working within 5 s, open streams too. */
  async revoke(id: string): Promise<void> {
    await this.#calls.call(IamService.method.revokeKey, { keyId: id });
  }

  /** The key that this client uses. */
  async whoAmI(): Promise<Key> {
    const { key } = await this.#calls.call(IamService.method.whoAmI, {});
    return keyOf(key);
  }
}

function wireQuota(quota: Quota) {
  return {
    ...(quota.sandboxes !== undefined && { sandboxes: Number(wholeNumber(quota.sandboxes, "sandboxes")) }),
    ...(quota.cpuCores !== undefined && { cpuCores: quota.cpuCores }),
    ...(quota.memoryMb !== undefined && { memoryMb: wholeNumber(quota.memoryMb, "memoryMb") }),
  };
}

function quotaOf(wire: WireQuota | undefined): Quota {
  return {
    ...(wire?.sandboxes !== undefined && { sandboxes: wire.sandboxes }),
    ...(wire?.cpuCores !== undefined && { cpuCores: wire.cpuCores }),
    ...(wire?.memoryMb !== undefined && { memoryMb: Number(wire.memoryMb) }),
  };
}

function projectOf(wire: WireProject | undefined, path: string): Project {
  return {
    path: wire?.path ?? path,
    quota: quotaOf(wire?.quota),
    used: quotaOf(wire?.used),
    createdAt: dateOf(wire?.createdAtMs ?? 0n),
  };
}

function keyOf(wire: WireKey | undefined): Key {
  if (!wire) throw new DsecError("INTERNAL", "the answer holds no key");
  return {
    id: wire.keyId,
    project: wire.project,
    role: roleName(wire.role),
    name: wire.name,
    createdAt: dateOf(wire.createdAtMs),
    expiresAt: dateOf(wire.expiresAtMs),
    revokedAt: dateOf(wire.revokedAtMs),
  };
}
