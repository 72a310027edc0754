// The catalogue: names and versions of layers. Content is on the edges, by digest.
import { create, fromJson, type JsonValue, toJson } from "@bufbuild/protobuf";
import { DsecError, ImageConfigSchema, LayerKind, type LayerVersion, LayerVersionSchema } from "@dsec/api";
import type { Transaction } from "kysely";
import { type Database, isForeignKeyViolation, isUniqueViolation, query } from "./database.ts";
import type { LayerRow, Schema } from "./schema.ts";

/** What an import made, without a name. */
export interface LayerContent {
  readonly kind: LayerKind;
  readonly digests: readonly string[];
  readonly metadataBytes: bigint;
  readonly dataBytes: bigint;
  readonly entries: bigint;
  readonly config: LayerVersion["config"];
  readonly builtFrom: string;
}

export interface LayerFilter {
  readonly projects: readonly string[];
  readonly kinds: readonly LayerKind[];
  readonly namePrefix: string;
  readonly limit: number;
  /** Last one of the page before. */
  readonly after?: { readonly project: string; readonly name: string; readonly version: number } | undefined;
}

const enterAttempts = 8;

export class LayerStore {
  readonly #db: Database;
  constructor(db: Database) {
    this.#db = db;
  }

  /**
   * Enters content under a name: the latest version again where it is the same content, else a new version.
   * Throws PROJECT_NOT_FOUND, LAYER_KIND_MISMATCH (a name keeps its kind).
   */
  async enter(
    project: string,
    name: string,
    content: LayerContent,
  ): Promise<{ layer: LayerVersion; existed: boolean }> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await query(() => this.#db.transaction().execute((tx) => enterOnce(tx, project, name, content)));
      } catch (error) {
        if (isForeignKeyViolation(error)) throw new DsecError("PROJECT_NOT_FOUND", `there is no project "${project}"`);
        // Another import of the same name took this version number first.
        if (!isUniqueViolation(error) || attempt === enterAttempts) throw error;
      }
    }
  }

  /** All versions of the names in these projects, highest version first. */
  versions(projects: readonly string[], name: string): Promise<LayerRow[]> {
    return query(() =>
      this.#db
        .selectFrom("layers")
        .selectAll()
        .where("project", "in", projects)
        .where("name", "=", name)
        .orderBy("version", "desc")
        .execute(),
    );
  }

  /** Those of these projects that hold the digest, newest first. */
  holding(projects: readonly string[], digest: string): Promise<LayerRow[]> {
    return query(() =>
      this.#db
        .selectFrom("layers")
        .innerJoin("layer_references", (join) =>
          join
            .onRef("layer_references.project", "=", "layers.project")
            .onRef("layer_references.name", "=", "layers.name")
            .onRef("layer_references.version", "=", "layers.version"),
        )
        .selectAll("layers")
        .where("layer_references.digest", "=", digest)
        .where("layers.project", "in", projects)
        .orderBy("layers.created_at_ms", "desc")
        .execute(),
    );
  }

  /** Distinct names of these projects, for "did you mean". */
  async names(projects: readonly string[]): Promise<{ project: string; name: string }[]> {
    const rows = await query(() =>
      this.#db
        .selectFrom("layers")
        .select(["project", "name"])
        .distinct()
        .where("project", "in", projects)
        .limit(5_000)
        .execute(),
    );
    return rows;
  }

  /** Sorted by project and name, the newest version of a name first. */
  async list(filter: LayerFilter): Promise<LayerVersion[]> {
    if (filter.projects.length === 0) return [];
    let q = this.#db.selectFrom("layers").selectAll().where("project", "in", filter.projects);
    if (filter.kinds.length > 0) q = q.where("kind", "in", filter.kinds.map(kindToText));
    if (filter.namePrefix !== "") q = q.where("name", "like", `${filter.namePrefix.replace(/[\\%_]/g, "\\$&")}%`);
    const after = filter.after;
    if (after !== undefined) {
      q = q.where((w) =>
        w.or([
          w(w.refTuple("project", "name"), ">", w.tuple(after.project, after.name)),
          w.and([w("project", "=", after.project), w("name", "=", after.name), w("version", "<", after.version)]),
        ]),
      );
    }
    q = q.orderBy("project").orderBy("name").orderBy("version", "desc").limit(filter.limit);
    return (await query(() => q.execute())).map(layerFromRow);
  }

  /** Takes rows and their references out and says which digests no name holds now. Rows that are gone do no harm. */
  remove(rows: readonly LayerRow[]): Promise<string[]> {
    return query(() =>
      this.#db.transaction().execute(async (tx) => {
        const digests = new Set<string>();
        for (const row of rows) {
          for (const digest of digestsOf(row)) digests.add(digest);
          await tx
            .deleteFrom("layers")
            .where("project", "=", row.project)
            .where("name", "=", row.name)
            .where("version", "=", row.version)
            .execute();
        }
        return [...(await unheld(tx, [...digests]))];
      }),
    );
  }

  /** Puts rows back that `remove` took out. */
  async restore(rows: readonly LayerRow[]): Promise<void> {
    await query(() =>
      this.#db.transaction().execute(async (tx) => {
        for (const row of rows) await insert(tx, row);
      }),
    );
  }

  /** Of these digests, those that are held by no name but these rows'. */
  async heldOnlyBy(rows: readonly LayerRow[]): Promise<string[]> {
    const digests = [...new Set(rows.flatMap(digestsOf))];
    const mine = new Set(rows.map((row) => `${row.project}/${row.name}@${row.version}`));
    const refs = await query(() =>
      this.#db.selectFrom("layer_references").selectAll().where("digest", "in", digests).execute(),
    );
    const others = new Set(
      refs.filter((ref) => !mine.has(`${ref.project}/${ref.name}@${ref.version}`)).map((ref) => ref.digest),
    );
    return digests.filter((digest) => !others.has(digest));
  }
}

async function enterOnce(tx: Transaction<Schema>, project: string, name: string, content: LayerContent) {
  const latest = await tx
    .selectFrom("layers")
    .selectAll()
    .where("project", "=", project)
    .where("name", "=", name)
    .orderBy("version", "desc")
    .limit(1)
    .executeTakeFirst();
  const kind = kindToText(content.kind);
  if (latest !== undefined && latest.kind !== kind) {
    throw new DsecError(
      "LAYER_KIND_MISMATCH",
      `"${project}/${name}" is a ${latest.kind} already and cannot get a version that is a ${kind}`,
    );
  }
  const row: LayerRow = {
    project,
    name,
    version: (latest?.version ?? 0) + 1,
    kind,
    digests: JSON.stringify(content.digests),
    metadata_bytes: Number(content.metadataBytes),
    data_bytes: Number(content.dataBytes),
    entries: Number(content.entries),
    created_at_ms: Date.now(),
    config: content.config === undefined ? "{}" : JSON.stringify(toJson(ImageConfigSchema, content.config)),
    built_from: content.builtFrom,
  };
  if (latest !== undefined && latest.digests === row.digests && latest.config === row.config) {
    return { layer: layerFromRow(latest), existed: true };
  }
  await insert(tx, row);
  return { layer: layerFromRow(row), existed: false };
}

async function insert(tx: Transaction<Schema>, row: LayerRow): Promise<void> {
  await tx.insertInto("layers").values(row).execute();
  const { project, name, version } = row;
  const references = [...new Set(digestsOf(row))].map((digest) => ({ digest, project, name, version }));
  if (references.length > 0) await tx.insertInto("layer_references").values(references).execute();
}

async function unheld(tx: Transaction<Schema>, digests: string[]): Promise<Set<string>> {
  const left = new Set(digests);
  if (digests.length === 0) return left;
  const held = await tx.selectFrom("layer_references").select("digest").where("digest", "in", digests).execute();
  for (const { digest } of held) left.delete(digest);
  return left;
}

export function digestsOf(row: LayerRow): string[] {
  return JSON.parse(row.digests) as string[];
}

export function layerFromRow(row: LayerRow): LayerVersion {
  return create(LayerVersionSchema, {
    name: `${row.project}/${row.name}`,
    version: row.version,
    kind: kindFromText(row.kind),
    digests: digestsOf(row),
    metadataBytes: BigInt(row.metadata_bytes),
    dataBytes: BigInt(row.data_bytes),
    entries: BigInt(row.entries),
    createdAtMs: BigInt(row.created_at_ms),
    config: fromJson(ImageConfigSchema, JSON.parse(row.config) as JsonValue),
    builtFrom: row.built_from,
  });
}

export function kindToText(kind: LayerKind): string {
  switch (kind) {
    case LayerKind.BASE:
      return "base";
    case LayerKind.WORKSPACE:
      return "workspace";
    case LayerKind.TOOLKIT:
      return "toolkit";
    default:
      throw new DsecError("INVALID_ARGUMENT", "the kind is missing: base, workspace or toolkit");
  }
}

/** Throws INVALID_ARGUMENT. */
export function kindFromText(text: string): LayerKind {
  switch (text) {
    case "base":
      return LayerKind.BASE;
    case "workspace":
      return LayerKind.WORKSPACE;
    case "toolkit":
      return LayerKind.TOOLKIT;
    default:
      throw new DsecError("INVALID_ARGUMENT", "the kind is not base, workspace or toolkit");
  }
}
