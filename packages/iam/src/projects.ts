import { DsecError, printable } from "@dsec/api";
import { type Database, isForeignKeyViolation, isUniqueViolation, query } from "./database.ts";
import { checkProjectPath, publicProject, rootProject, selfAndAncestors } from "./paths.ts";
import type { Amounts } from "./quota-ledger.ts";
import type { ProjectRow } from "./schema.ts";

/** Each absent: no limit of its own. */
export interface QuotaLimits {
  readonly sandboxes?: number | undefined;
  readonly cpuCores?: number | undefined;
  readonly memoryMb?: number | undefined;
}

export class ProjectStore {
  readonly #db: Database;
  constructor(db: Database) {
    this.#db = db;
  }

  /** Throws NAME_TAKEN, PROJECT_NOT_FOUND (the one above), INVALID_ARGUMENT. */
  async create(path: string, quota: QuotaLimits): Promise<ProjectRow> {
    checkProjectPath(path);
    checkQuota(quota);
    const parent = selfAndAncestors(path)[1];
    if (parent === undefined) {
      throw new DsecError(
        "INVALID_ARGUMENT",
        `"${path}" has no project above it: projects begin with "${rootProject}/"`,
      );
    }
    if (parent === publicProject || parent.startsWith(`${publicProject}/`)) {
      throw new DsecError("INVALID_ARGUMENT", `"${publicProject}" holds shared layers and has no projects below it`);
    }
    const row: ProjectRow = { path, ...quotaColumns(quota), created_at_ms: Date.now() };
    await query(async () => {
      try {
        await this.#db.transaction().execute(async (tx) => {
          // Holds the parent, so that it is not deleted at the same moment.
          const above = await tx.selectFrom("projects").select("path").where("path", "=", parent).forShare().execute();
          if (above.length === 0)
            throw new DsecError("PROJECT_NOT_FOUND", `there is no project "${printable(parent)}"`);
          await tx.insertInto("projects").values(row).execute();
        });
      } catch (error) {
        if (isUniqueViolation(error))
          throw new DsecError("NAME_TAKEN", `there is a project "${printable(path)}" already`);
        throw error;
      }
    });
    return row;
  }

  /** The project and those below it, by path. */
  list(path: string): Promise<ProjectRow[]> {
    return query(() =>
      this.#db
        .selectFrom("projects")
        .selectAll()
        .where((w) => w.or([w("path", "=", path), w("path", "like", `${path}/%`)]))
        .orderBy("path")
        .execute(),
    );
  }

  /** The project and all above it, nearest first. Throws PROJECT_NOT_FOUND. */
  async chain(path: string): Promise<ProjectRow[]> {
    const paths = selfAndAncestors(path);
    const rows = await query(() => this.#db.selectFrom("projects").selectAll().where("path", "in", paths).execute());
    rows.sort((a, b) => b.path.length - a.path.length);
    if (rows[0]?.path !== path) throw new DsecError("PROJECT_NOT_FOUND", `there is no project "${printable(path)}"`);
    return rows;
  }

  /** Throws PROJECT_NOT_FOUND, INVALID_ARGUMENT. */
  async setQuota(path: string, quota: QuotaLimits): Promise<ProjectRow> {
    checkQuota(quota);
    const row = await query(() =>
      this.#db
        .updateTable("projects")
        .set(quotaColumns(quota))
        .where("path", "=", path)
        .returningAll()
        .executeTakeFirst(),
    );
    if (row === undefined) throw new DsecError("PROJECT_NOT_FOUND", `there is no project "${printable(path)}"`);
    return row;
  }

  /** Removes it with its keys that no longer work. Throws PROJECT_IN_USE, PROJECT_NOT_FOUND. */
  async delete(path: string): Promise<void> {
    if (path === rootProject || path === publicProject) {
      throw new DsecError("PROJECT_IN_USE", `"${path}" is one of the platform's own projects and stays`);
    }
    const now = Date.now();
    await query(async () => {
      try {
        await this.#db.transaction().execute(async (tx) => {
          const row = await tx.selectFrom("projects").select("path").where("path", "=", path).forUpdate().execute();
          if (row.length === 0) throw new DsecError("PROJECT_NOT_FOUND", `there is no project "${printable(path)}"`);
          const below = await tx
            .selectFrom("projects")
            .select("path")
            .where("path", "like", `${path}/%`)
            .limit(3)
            .execute();
          if (below.length > 0) throw inUse(path, `has projects below it: ${below.map((p) => p.path).join(", ")}`);
          const layers = await tx.selectFrom("layers").select("name").where("project", "=", path).limit(3).execute();
          if (layers.length > 0) throw inUse(path, `has layers: ${layers.map((l) => l.name).join(", ")}`);
          await tx
            .deleteFrom("keys")
            .where("project", "=", path)
            .where((w) => w.or([w("revoked_at_ms", "is not", null), w("expires_at_ms", "<=", now)]))
            .execute();
          const keys = await tx.selectFrom("keys").select("id").where("project", "=", path).limit(3).execute();
          if (keys.length > 0) throw inUse(path, `has keys that work: ${keys.map((k) => k.id).join(", ")}`);
          await tx.deleteFrom("projects").where("path", "=", path).execute();
        });
      } catch (error) {
        if (isForeignKeyViolation(error)) throw inUse(path, "got a key or a layer at this moment");
        throw error;
      }
    });
  }
}

export function quotaOf(row: ProjectRow): QuotaLimits {
  return {
    sandboxes: row.quota_sandboxes ?? undefined,
    cpuCores: row.quota_cpu_cores ?? undefined,
    memoryMb: row.quota_memory_mb ?? undefined,
  };
}

/** For the ledger: what the projects of a chain allow. */
export function limitsOf(chain: readonly ProjectRow[]): { path: string; limits: Partial<Amounts> }[] {
  return chain.map((row) => {
    const limits: Partial<Amounts> = {};
    if (row.quota_sandboxes !== null) limits.sandboxes = row.quota_sandboxes;
    if (row.quota_cpu_cores !== null) limits.cpuCores = row.quota_cpu_cores;
    if (row.quota_memory_mb !== null) limits.memoryMb = row.quota_memory_mb;
    return { path: row.path, limits };
  });
}

function quotaColumns(quota: QuotaLimits) {
  return {
    quota_sandboxes: quota.sandboxes ?? null,
    quota_cpu_cores: quota.cpuCores ?? null,
    quota_memory_mb: quota.memoryMb ?? null,
  };
}

function checkQuota(quota: QuotaLimits): void {
  const { sandboxes, cpuCores, memoryMb } = quota;
  if (sandboxes !== undefined && sandboxes > 2_147_483_647) throw wrongQuota("sandboxes is above 2147483647");
  if (cpuCores !== undefined && !(cpuCores >= 0 && Number.isFinite(cpuCores)))
    throw wrongQuota("cpu_cores is not a number of cores");
  if (memoryMb !== undefined && memoryMb > Number.MAX_SAFE_INTEGER) throw wrongQuota("memory_mb is too large");
}

function wrongQuota(what: string): DsecError {
  return new DsecError("INVALID_ARGUMENT", `the quota is not usable: ${what}`);
}

function inUse(path: string, why: string): DsecError {
  return new DsecError("PROJECT_IN_USE", `project "${path}" ${why}`);
}
