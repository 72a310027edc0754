import { DsecError } from "@dsec/api";
import { PGlite } from "@electric-sql/pglite";
import { Kysely, PGliteDialect, PostgresDialect } from "kysely";
import pg from "pg";
import { migrate } from "./migrations.ts";
import type { Schema } from "./schema.ts";

export type Database = Kysely<Schema>;

/** `pgliteDir`: embedded, its files there ("memory://" for tests); `url`: a PostgreSQL server. */
export type DatabaseSettings = { readonly pgliteDir: string } | { readonly url: string };

const int8 = 20;

/** Opens the database and brings its tables to this version. Throws DATABASE_UNAVAILABLE. */
export async function openDatabase(settings: DatabaseSettings): Promise<Database> {
  const db = "pgliteDir" in settings ? openEmbedded(settings.pgliteDir) : openServer(settings.url);
  try {
    await migrate(db as never);
  } catch (error) {
    await db.destroy().catch(() => {});
    throw asDatabaseError(error);
  }
  return db;
}

function openEmbedded(dir: string): Database {
  const pglite = () => PGlite.create(dir, { parsers: { [int8]: Number } });
  return new Kysely<Schema>({ dialect: new PGliteDialect({ pglite }) });
}

function openServer(url: string): Database {
  const pool = new pg.Pool({
    connectionString: url,
    max: 8,
    connectionTimeoutMillis: 2_000,
    // Both: the server ends a slow query, and the client gives up on a server that does not answer.
    statement_timeout: 10_000,
    query_timeout: 10_000,
    types: {
      getTypeParser: ((oid: number, format?: "text") =>
        oid === int8 ? Number : pg.types.getTypeParser(oid, format)) as typeof pg.types.getTypeParser,
    },
  });
  // An idle connection that breaks is replaced; without a listener it would end the process.
  pool.on("error", () => {});
  // The same for one that breaks while it is lent out: its query fails by itself.
  pool.on("connect", (client) => client.on("error", () => {}));
  return new Kysely<Schema>({ dialect: new PostgresDialect({ pool }) });
}

/** Runs queries; what fails for want of a database becomes DATABASE_UNAVAILABLE. */
export async function query<T>(run: () => Promise<T>): Promise<T> {
  try {
    return await run();
  } catch (error) {
    throw asDatabaseError(error);
  }
}

// Classes of SQLSTATE that say "not now": connection, resources, operator intervention, system, read-only standby.
const away = /^(08|53|57|58|25006)/;

function asDatabaseError(error: unknown): unknown {
  if (error instanceof DsecError) return error;
  const code = sqlState(error);
  if (code !== "" && !away.test(code)) return error;
  const said = error instanceof Error ? error.message : String(error);
  return new DsecError("DATABASE_UNAVAILABLE", `the database did not answer: ${said}`, { cause: error });
}

/** The five letters of PostgreSQL's own errors, or "". */
function sqlState(error: unknown): string {
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  return /^[0-9A-Z]{5}$/.test(code) ? code : "";
}

export function isUniqueViolation(error: unknown): boolean {
  return sqlState(error) === "23505";
}

export function isForeignKeyViolation(error: unknown): boolean {
  return sqlState(error) === "23503";
}
