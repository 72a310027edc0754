// Tables as Kysely sees them. Times are Unix milliseconds; JSON is kept as text, which is the same on every PostgreSQL.
export interface ProjectRow {
  path: string;
  quota_sandboxes: number | null;
  quota_cpu_cores: number | null;
  quota_memory_mb: number | null;
  created_at_ms: number;
}

export interface KeyRow {
  id: string;
  /** SHA-256 of the whole key, hex. */
  hash: string;
  project: string;
  role: string;
  name: string;
  created_at_ms: number;
  expires_at_ms: number | null;
  revoked_at_ms: number | null;
}

export interface LayerRow {
  project: string;
  name: string;
  version: number;
  kind: string;
  /** JSON array, lowest first. */
  digests: string;
  metadata_bytes: number;
  data_bytes: number;
  entries: number;
  created_at_ms: number;
  /** JSON of an ImageConfig. */
  config: string;
  built_from: string;
}

/** Which names hold a digest: content goes when no row is left. */
export interface LayerReferenceRow {
  digest: string;
  project: string;
  name: string;
  version: number;
}

export interface Schema {
  projects: ProjectRow;
  keys: KeyRow;
  layers: LayerRow;
  layer_references: LayerReferenceRow;
}
