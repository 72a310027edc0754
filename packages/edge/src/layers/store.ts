// The node's layers by digest. A layer is made in staging, written through, and renamed into place whole.
import { existsSync } from "node:fs";
import { type FileHandle, mkdir, mkdtemp, open, readdir, readFile, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { create } from "@bufbuild/protobuf";
import { DsecError, type ImageConfig, ImageConfigSchema, isEdgeName, printable } from "@dsec/api";
import type { Logger } from "../log.ts";
import { type BuildOptions, type Built, cancelled, type LayerJson, runMklayer } from "./builder.ts";
import { readImage } from "./image.ts";
import { ImageArchive, limited } from "./image-archive.ts";
import { defaultLimits, type ImportLimits } from "./limits.ts";
import { Turns } from "./turns.ts";

export type LayerInfo = LayerJson;

const formats = ["tar", "oci-archive", "docker-archive"] as const;
export type ImportFormat = (typeof formats)[number];

export function isImportFormat(text: string): text is ImportFormat {
  return (formats as readonly string[]).includes(text);
}

export interface LayerStoreOptions {
  readonly dataDir: string;
  /** Staging is apart for each edge, so that one that starts leaves its neighbours' alone. */
  readonly edge: string;
  /** The program. */
  readonly mklayer: string;
  readonly log?: Logger;
  /** Imports that run at once; the rest wait. */
  readonly maxImports?: number;
}

export interface ImportOptions {
  readonly format: ImportFormat;
  readonly body: Readable;
  readonly kind?: "base" | "workspace" | "toolkit";
  readonly limits?: Partial<ImportLimits>;
  readonly signal?: AbortSignal;
  /** Unpacked bytes and entries so far. */
  readonly onProgress?: (progress: { bytes: number; entries: number }) => void;
}

export interface ImportResult {
  /** Lowest first; several where the image was too large for one. */
  readonly digests: readonly string[];
  readonly config: ImageConfig;
  readonly metadataBytes: number;
  readonly dataBytes: number;
  readonly entries: number;
  /** All of it was there before. */
  readonly existed: boolean;
}

export class LayerStore {
  readonly #layers: string;
  readonly #staging: string;
  readonly #options: LayerStoreOptions;
  readonly #turns: Turns;

  private constructor(options: LayerStoreOptions) {
    this.#options = options;
    this.#layers = join(options.dataDir, "layers");
    this.#staging = join(options.dataDir, "staging", options.edge);
    this.#turns = new Turns(options.maxImports ?? 2);
  }

  /** Makes the directories and removes what an earlier run left in staging. */
  static async open(options: LayerStoreOptions): Promise<LayerStore> {
    if (!isEdgeName(options.edge)) throw new DsecError("INTERNAL", `${printable(options.edge)} is no name of an edge`);
    const store = new LayerStore(options);
    await mkdir(store.#layers, { recursive: true, mode: 0o755 });
    await rm(store.#staging, { recursive: true, force: true });
    await mkdir(store.#staging, { recursive: true, mode: 0o700 });
    return store;
  }

  /** The directory of a layer's files, whether it is there or not. */
  path(digest: string): string {
    const hex = /^sha256:([0-9a-f]{64})$/.exec(digest)?.[1];
    if (hex === undefined) throw new DsecError("INVALID_ARGUMENT", `"${printable(digest)}" is no layer digest`);
    return join(this.#layers, hex);
  }

  has(digest: string): boolean {
    return existsSync(join(this.path(digest), "layer.json"));
  }

  async info(digest: string): Promise<LayerInfo> {
    try {
      return JSON.parse(await readFile(join(this.path(digest), "layer.json"), "utf8")) as LayerInfo;
    } catch (error) {
      if (isCode(error, "ENOENT")) throw new DsecError("LAYER_NOT_FOUND", `this node has no layer ${digest}`);
      throw error;
    }
  }

  async list(): Promise<LayerInfo[]> {
    const names = (await readdir(this.#layers)).filter((name) => /^[0-9a-f]{64}$/.test(name)).sort();
    return Promise.all(names.map((name) => this.info(`sha256:${name}`)));
  }

  /** False when it was not there. */
  async remove(digest: string): Promise<boolean> {
    const dir = await mkdtemp(join(this.#staging, "removed-"));
    try {
      await rename(this.path(digest), join(dir, "layer"));
      await syncDir(this.#layers);
      return true;
    } catch (error) {
      if (isCode(error, "ENOENT")) return false;
      throw error;
    } finally {
      await rm(dir, { recursive: true, force: true });
    }
  }

  async import(options: ImportOptions): Promise<ImportResult> {
    if (options.signal?.aborted) throw cancelled();
    const limits = { ...defaultLimits, ...options.limits };
    using _turn = await this.#turns.take(options.signal);
    // An upload that stalls gives its turn back.
    const clock = AbortSignal.timeout(Math.min(limits.maxSeconds * 1000, 2 ** 31 - 1));
    const signal = options.signal ? AbortSignal.any([options.signal, clock]) : clock;
    const dir = await mkdtemp(join(this.#staging, "import-"));
    try {
      const { config, made } = await this.#make({ ...options, limits, signal }, dir);
      const kept: Kept[] = [];
      for (const { layer, out } of made) kept.push({ layer, existed: !(await this.#place(out, layer.digest)) });
      this.#options.log?.info({ layers: kept.map(({ layer }) => layer), format: options.format }, "layers made");
      return result(kept, config);
    } catch (error) {
      if (isCode(error, "ENOSPC") || isCode(error, "EDQUOT")) {
        throw new DsecError("CAPACITY_FULL", "the node has no room for the layer", { cause: error });
      }
      if (options.signal?.aborted) throw cancelled();
      throw clock.aborted
        ? new DsecError("ARCHIVE_LIMIT", `the import took longer than ${limits.maxSeconds} s`)
        : error;
    } finally {
      await rm(dir, { recursive: true, force: true });
    }
  }

  /** Makes all layers in `dir`; none is placed before all are whole. */
  async #make(job: Job, dir: string): Promise<{ config: ImageConfig; made: Made[] }> {
    const { format, body, limits } = job;
    if (format === "tar") {
      const input = limited(body, limits.uploadBytes);
      return { config: create(ImageConfigSchema), made: [await this.#build(dir, job, input, "plain", limits)] };
    }
    const { layers, config } = await readImage(await ImageArchive.read(body, dir, limits, job.signal), format, limits);
    try {
      return { config, made: await this.#buildRuns(dir, job, layers, limits) };
    } catch (error) {
      // A hard link from one run into another can be made only where both are one.
      if (!(error instanceof LaterRun)) throw error;
      return { config, made: await this.#buildRuns(dir, job, layers, { ...limits, collapseBytes: limits.maxBytes }) };
    }
  }

  async #buildRuns(dir: string, job: Job, layers: readonly string[], limits: ImportLimits): Promise<Made[]> {
    const made: Made[] = [];
    let left = limits;
    for (let rest = layers; rest.length > 0; ) {
      const whiteouts = job.kind === "base" && made.length === 0 ? "bottom" : "upper";
      try {
        const built = await this.#build(dir, job, rest, whiteouts, left);
        made.push(built);
        rest = rest.slice(built.inputs);
        const { data, entries } = built.layer;
        left = { ...left, maxBytes: left.maxBytes - data.bytes, maxEntries: left.maxEntries - entries };
      } catch (error) {
        const maybeLink = made.length > 0 && error instanceof DsecError && error.reason === "ARCHIVE_INVALID";
        throw maybeLink ? new LaterRun(error.message, { cause: error }) : error;
      }
    }
    return made;
  }

  async #build(
    dir: string,
    job: Job,
    input: BuildOptions["input"],
    whiteouts: BuildOptions["whiteouts"],
    limits: ImportLimits,
  ): Promise<Made> {
    const out = await mkdtemp(join(dir, "out-"));
    const { onProgress, signal } = job;
    const report = onProgress && ((bytes: number, entries: number) => onProgress({ bytes, entries }));
    const { mklayer } = this.#options;
    return { ...(await runMklayer({ mklayer, out, input, whiteouts, limits, signal, onProgress: report })), out };
  }

  /** mklayer wrote the files through; false when an equal layer is there already. */
  async #place(out: string, digest: string): Promise<boolean> {
    await syncDir(out);
    try {
      await rename(out, this.path(digest));
    } catch (error) {
      if (isCode(error, "ENOTEMPTY") || isCode(error, "EEXIST")) return false;
      throw error;
    }
    await syncDir(this.#layers);
    return true;
  }
}

type Job = ImportOptions & { readonly limits: ImportLimits; readonly signal: AbortSignal };

/** A layer in staging. */
interface Made extends Built {
  readonly out: string;
}

interface Kept {
  readonly layer: LayerJson;
  readonly existed: boolean;
}

/** A run above the first was refused. */
class LaterRun extends Error {}

function result(layers: readonly Kept[], config: ImageConfig): ImportResult {
  const sum = (of: (layer: LayerJson) => number) => layers.reduce((total, { layer }) => total + of(layer), 0);
  return {
    digests: layers.map(({ layer }) => layer.digest),
    config,
    metadataBytes: sum((layer) => layer.meta.bytes),
    dataBytes: sum((layer) => layer.data.bytes),
    entries: sum((layer) => layer.entries),
    existed: layers.every(({ existed }) => existed),
  };
}

async function syncDir(path: string): Promise<void> {
  let handle: FileHandle | undefined;
  try {
    handle = await open(path, "r");
    await handle.sync();
  } finally {
    await handle?.close();
  }
}

function isCode(error: unknown, code: string): boolean {
  return error instanceof Error && (error as NodeJS.ErrnoException).code === code;
}
