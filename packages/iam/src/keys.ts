import { hash, randomBytes, timingSafeEqual } from "node:crypto";
import { DsecError, printable, randomBase32 } from "@dsec/api";
import { type Database, isForeignKeyViolation, query } from "./database.ts";
import { rootProject } from "./paths.ts";
import type { RoleName } from "./roles.ts";
import type { KeyRow } from "./schema.ts";

const secretPattern = /^dsec_([a-z2-7]{12})_[A-Za-z0-9_-]{43}$/;
const keyIdPattern = /^[a-z2-7]{12}$/;

/** The ID inside a secret, or undefined where it is no key at all. */
export function keyIdOf(secret: string): string | undefined {
  return secretPattern.exec(secret)?.[1];
}

/** SHA-256 of the whole key, hex. */
export function hashKey(secret: string): string {
  return hash("sha256", secret, "hex");
}

export function sameHash(a: string, b: string): boolean {
  const [left, right] = [Buffer.from(a, "hex"), Buffer.from(b, "hex")];
  return left.length === right.length && timingSafeEqual(left, right);
}

export interface NewKey {
  readonly project: string;
  readonly role: RoleName;
  readonly name: string;
  /** Milliseconds from now; 0: no end. */
  readonly ttlMs: number;
}

/** A fresh secret and its row, not yet in the database. */
export function makeKey(wanted: NewKey, nowMs: number): { row: KeyRow; secret: string } {
  const id = randomBase32(12);
  const secret = `dsec_${id}_${randomBytes(32).toString("base64url")}`;
  const row: KeyRow = {
    id,
    hash: hashKey(secret),
    project: wanted.project,
    role: wanted.role,
    name: wanted.name,
    created_at_ms: nowMs,
    expires_at_ms: wanted.ttlMs > 0 ? nowMs + wanted.ttlMs : null,
    revoked_at_ms: null,
  };
  return { row, secret };
}

export class KeyStore {
  readonly #db: Database;
  constructor(db: Database) {
    this.#db = db;
  }

  /** Throws PROJECT_NOT_FOUND. */
  async create(wanted: NewKey): Promise<{ row: KeyRow; secret: string }> {
    const key = makeKey(wanted, Date.now());
    try {
      await query(() => this.#db.insertInto("keys").values(key.row).execute());
    } catch (error) {
      if (!isForeignKeyViolation(error)) throw error;
      throw new DsecError("PROJECT_NOT_FOUND", `there is no project "${printable(wanted.project)}" to make a key in`);
    }
    return key;
  }

  /** Rows of the IDs that are there. */
  find(ids: readonly string[]): Promise<KeyRow[]> {
    return query(() => this.#db.selectFrom("keys").selectAll().where("id", "in", ids).execute());
  }

  /** Keys of the project and of those below it, oldest first. */
  async list(project: string): Promise<KeyRow[]> {
    const rows = await query(() =>
      this.#db
        .selectFrom("keys")
        .selectAll()
        .where((w) => w.or([w("project", "=", project), w("project", "like", `${project}/%`)]))
        .orderBy("created_at_ms")
        .orderBy("id")
        .execute(),
    );
    return rows;
  }

  /**
   * Twice is the same as once. Throws KEY_NOT_FOUND, also for keys of projects that the caller does not administer, and
   * LAST_ADMIN_KEY where nobody could make a key of the root project any more.
   */
  async revoke(keyId: string, administers: (project: string) => boolean): Promise<void> {
    const row = keyIdPattern.test(keyId) ? (await this.find([keyId]))[0] : undefined;
    if (row === undefined || !administers(row.project)) {
      throw new DsecError(
        "KEY_NOT_FOUND",
        `there is no key "${printable(keyId)}" in the projects that the caller administers`,
      );
    }
    if (row.revoked_at_ms !== null) return;
    const now = Date.now();
    const administrators = (db: Database) =>
      db
        .selectFrom("keys")
        .select("id")
        .where("project", "=", rootProject)
        .where("role", "=", "admin")
        .where("revoked_at_ms", "is", null)
        .where((w) => w.or([w("expires_at_ms", "is", null), w("expires_at_ms", ">", now)]))
        // Two that revoke each other at once see that one is going, and lock in the same order.
        .orderBy("id")
        .forUpdate()
        .execute();
    await query(() =>
      this.#db.transaction().execute(async (db) => {
        const isOne = row.project === rootProject && row.role === "admin";
        if (isOne && (await administrators(db)).every(({ id }) => id === keyId)) {
          throw new DsecError("LAST_ADMIN_KEY", `${keyId} is the last key with the role admin of "${rootProject}"`);
        }
        const revoked = { revoked_at_ms: now };
        await db.updateTable("keys").set(revoked).where("id", "=", keyId).where("revoked_at_ms", "is", null).execute();
      }),
    );
  }
}
