// The node's layers by digest. A layer is made in staging, written through, and renamed into place whole.
import { existsSync } from "node:fs";
import { type FileHandle, mkdir, mkdtemp, open, readdir, readFile, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { create } from "@bufbuild/protobuf";
import { DsecError, type ImageConfig, ImageConfigSchema, isEdgeName, printable } from "@dsec/api";
import type { Logger } from "../log.ts";
import { type BuildOptions, cancelled, type LayerJson, runMklayer } from "./builder.ts";
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
    const { signal } = options;
    if (signal?.aborted) throw cancelled();
    using _turn = await this.#turns.take(signal);
    const dir = await mkdtemp(join(this.#staging, "import-"));
    try {
      return await this.#import(options, dir);
    } catch (error) {
      if (isCode(error, "ENOSPC") || isCode(error, "EDQUOT")) {
        throw new DsecError("CAPACITY_FULL", "the node has no room for the layer", { cause: error });
      }
      throw signal?.aborted ? cancelled() : error;
    } finally {
      await rm(dir, { recursive: true, force: true });
    }
  }

  async #import(options: ImportOptions, dir: string): Promise<ImportResult> {
    const { format, body, signal } = options;
    const limits = { ...defaultLimits, ...options.limits };
    if (format === "tar") {
      const input = limited(body, limits.uploadBytes);
      const built = await this.#build(dir, { ...options, limits, input, whiteouts: "plain" });
      return result([built], create(ImageConfigSchema));
    }
    const archive = await ImageArchive.read(body, dir, limits, signal);
    const image = await readImage(archive, format, limits);
    const layers: Kept[] = [];
    let rest = image.layers;
    let left = limits;
    while (rest.length > 0) {
      const whiteouts = options.kind === "base" && layers.length === 0 ? "bottom" : "upper";
      const built = await this.#build(dir, { ...options, limits: left, input: rest, whiteouts });
      layers.push(built);
      rest = rest.slice(built.inputs);
      left = {
        ...left,
        maxBytes: left.maxBytes - built.layer.data.bytes,
        maxEntries: left.maxEntries - built.layer.entries,
      };
    }
    return result(layers, image.config);
  }

  async #build(
    dir: string,
    options: ImportOptions & Pick<BuildOptions, "input" | "whiteouts" | "limits">,
  ): Promise<Kept> {
    const out = await mkdtemp(join(dir, "out-"));
    const { onProgress } = options;
    const built = await runMklayer({
      mklayer: this.#options.mklayer,
      out,
      input: options.input,
      whiteouts: options.whiteouts,
      limits: options.limits,
      signal: options.signal,
      onProgress: onProgress && ((bytes, entries) => onProgress({ bytes, entries })),
    });
    const existed = !(await this.#place(out, built.layer.digest));
    this.#options.log?.info({ digest: built.layer.digest, dataBytes: built.layer.data.bytes, existed }, "layer made");
    return { ...built, existed };
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

interface Kept {
  readonly layer: LayerJson;
  readonly inputs: number;
  readonly existed: boolean;
}

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
