// Every test of queries runs on PGlite, and on a PostgreSQL where one can be started.
import { sql } from "kysely";
import { afterAll, beforeAll, beforeEach, describe } from "vitest";
import { type Database, openDatabase } from "../../src/database.ts";
import { type Postgres, postgresMissing, startPostgres } from "./postgres.ts";

export const engines = ["PGlite", "PostgreSQL"] as const;

/** Runs the tests once on each engine; `current()` is a database with empty tables. */
export function onEachDatabase(
  name: string,
  tests: (current: () => Database, url: () => string | undefined) => void,
): void {
  for (const engine of engines) {
    const missing = engine === "PostgreSQL" ? postgresMissing() : undefined;
    if (missing !== undefined) process.stderr.write(`skipped: ${name} on PostgreSQL: ${missing}\n`);
    describe.skipIf(missing !== undefined)(`${name} on ${engine}`, () => {
      let db: Database;
      let server: Postgres | undefined;
      beforeAll(async () => {
        if (engine === "PostgreSQL") server = await startPostgres();
        db = await openDatabase(server === undefined ? { pgliteDir: "memory://" } : { url: server.url });
      });
      afterAll(async () => {
        await db?.destroy();
        await server?.remove();
      });
      beforeEach(async () => {
        await sql`truncate projects, keys, layers, layer_references`.execute(db);
      });
      tests(
        () => db,
        () => server?.url,
      );
    });
  }
}
