import { type Kysely, sql } from "kysely";
import { type Migration, type MigrationProvider, Migrator } from "kysely/migration";

// A migration that was released is never changed; a new one is added below it.
const migrations: Record<string, Migration> = {
  "0001-first": {
    async up(db: Kysely<unknown>): Promise<void> {
      await db.schema
        .createTable("projects")
        .addColumn("path", "text", (c) => c.primaryKey())
        .addColumn("quota_sandboxes", "integer")
        .addColumn("quota_cpu_cores", "double precision")
        .addColumn("quota_memory_mb", "bigint")
        .addColumn("created_at_ms", "bigint", (c) => c.notNull())
        .execute();
      await db.schema
        .createTable("keys")
        .addColumn("id", "text", (c) => c.primaryKey())
        .addColumn("hash", "text", (c) => c.notNull().unique())
        .addColumn("project", "text", (c) => c.notNull().references("projects.path"))
        .addColumn("role", "text", (c) => c.notNull())
        .addColumn("name", "text", (c) => c.notNull())
        .addColumn("created_at_ms", "bigint", (c) => c.notNull())
        .addColumn("expires_at_ms", "bigint")
        .addColumn("revoked_at_ms", "bigint")
        .execute();
      await db.schema.createIndex("keys_by_project").on("keys").column("project").execute();
      await db.schema
        .createTable("layers")
        .addColumn("project", "text", (c) => c.notNull().references("projects.path"))
        .addColumn("name", "text", (c) => c.notNull())
        .addColumn("version", "integer", (c) => c.notNull())
        .addColumn("kind", "text", (c) => c.notNull())
        .addColumn("digests", "text", (c) => c.notNull())
        .addColumn("metadata_bytes", "bigint", (c) => c.notNull())
        .addColumn("data_bytes", "bigint", (c) => c.notNull())
        .addColumn("entries", "bigint", (c) => c.notNull())
        .addColumn("created_at_ms", "bigint", (c) => c.notNull())
        .addColumn("config", "text", (c) => c.notNull())
        .addColumn("built_from", "text", (c) => c.notNull())
        .addPrimaryKeyConstraint("layers_key", ["project", "name", "version"])
        .execute();
      await db.schema
        .createTable("layer_references")
        .addColumn("digest", "text", (c) => c.notNull())
        .addColumn("project", "text", (c) => c.notNull())
        .addColumn("name", "text", (c) => c.notNull())
        .addColumn("version", "integer", (c) => c.notNull())
        .addPrimaryKeyConstraint("layer_references_key", ["digest", "project", "name", "version"])
        .addForeignKeyConstraint(
          "layer_references_layer",
          ["project", "name", "version"],
          "layers",
          ["project", "name", "version"],
          (c) => c.onDelete("cascade"),
        )
        .execute();
      await sql`create index layer_references_by_layer on layer_references (project, name, version)`.execute(db);
    },
  },
};

const provider: MigrationProvider = { getMigrations: async () => migrations };

/** Brings the tables to this version; several apiservers may do so at once. Throws what the database said. */
export async function migrate(db: Kysely<never> | Kysely<object>): Promise<void> {
  const migrator = new Migrator({ db: db as Kysely<unknown>, provider });
  const { error } = await migrator.migrateToLatest();
  if (error) throw error;
}
