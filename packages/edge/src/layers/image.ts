// What is in an image's archive: an OCI layout, or what `docker save` writes.
import { create } from "@bufbuild/protobuf";
import { DsecError, type ImageConfig, ImageConfigSchema, printable } from "@dsec/api";
import { type Blob, type ImageArchive, isCompressed } from "./image-archive.ts";
import type { ImportLimits } from "./limits.ts";

export interface Image {
  readonly config: ImageConfig;
  /** Archives, lowest first. */
  readonly layers: readonly string[];
}

type Json = Record<string, unknown>;

const architecture = process.arch === "x64" ? "amd64" : process.arch;

/** Finds the one image for this machine. */
export async function readImage(archive: ImageArchive, format: "oci-archive" | "docker-archive", limits: ImportLimits) {
  const readers = format === "oci-archive" ? [readOci, readDocker] : [readDocker, readOci];
  for (const read of readers) {
    const image = await read(archive, limits);
    if (image) return image;
  }
  throw invalid("has neither an index.json nor a manifest.json");
}

async function readOci(archive: ImageArchive, limits: ImportLimits): Promise<Image | undefined> {
  const index = await archive.json("index.json");
  if (index === undefined) return undefined;
  const manifest = await pickManifest(archive, object(index, "index.json"), 0);
  const config = object(await descriptorJson(archive, manifest["config"]), "the configuration");
  checkPlatform(config);
  const layers = list(manifest["layers"], "the manifest's layers").map((layer) => descriptorBlob(archive, layer).file);
  return image(config, layers, limits);
}

async function pickManifest(archive: ImageArchive, index: Json, depth: number): Promise<Json> {
  if (depth > 4) throw invalid("nests its indexes too deep");
  if (index["manifests"] === undefined && index["layers"] !== undefined) return index;
  const all = list(index["manifests"], "the index's manifests").map((entry) => object(entry, "a descriptor"));
  const own = all.filter(
    (entry) => entry["platform"] !== undefined && isOwnPlatform(object(entry["platform"], "a platform")),
  );
  const unnamed = all.filter((entry) => entry["platform"] === undefined);
  const candidates = own.length > 0 ? own : unnamed;
  const digests = new Set(candidates.map((entry) => entry["digest"]));
  const [first] = candidates;
  if (first === undefined) throw invalid(`has nothing for linux/${architecture}`);
  if (digests.size > 1) throw invalid("holds several images; export one of them");
  return pickManifest(archive, object(await descriptorJson(archive, first), "a manifest"), depth + 1);
}

function isOwnPlatform(platform: Json): boolean {
  return platform["os"] === "linux" && platform["architecture"] === architecture;
}

function checkPlatform(config: Json): void {
  const { os = "linux", architecture: built = architecture } = config;
  if (os === "linux" && built === architecture) return;
  throw invalid(`is for ${printable(String(os))}/${printable(String(built))}, this node is linux/${architecture}`);
}

function descriptorBlob(archive: ImageArchive, value: unknown): Blob {
  const descriptor = object(value, "a descriptor");
  const { digest, size } = descriptor;
  const hex = /^sha256:([0-9a-f]{64})$/.exec(String(digest))?.[1];
  if (hex === undefined) throw invalid(`names a blob by ${printable(String(digest))}, which is no sha256 digest`);
  const blob = archive.find(`blobs/sha256/${hex}`);
  if (blob === undefined) throw invalid(`lacks the blob sha256:${hex}`);
  if (blob.sha256 !== hex || (typeof size === "number" && size !== blob.bytes)) {
    throw invalid(`has a blob that is not what its descriptor says: sha256:${hex}`);
  }
  return blob;
}

function descriptorJson(archive: ImageArchive, value: unknown): Promise<unknown> {
  return archive.json(`blobs/sha256/${descriptorBlob(archive, value).sha256}`);
}

async function readDocker(archive: ImageArchive, limits: ImportLimits): Promise<Image | undefined> {
  const manifest = await archive.json("manifest.json");
  if (manifest === undefined) return undefined;
  const images = list(manifest, "manifest.json");
  if (images.length !== 1) throw invalid(`holds ${images.length} images; save one`);
  const entry = object(images[0], "manifest.json's entry");
  const name = String(entry["Config"]);
  const config = object(await archive.json(name), `the configuration ${printable(name)}`);
  const hex = /(?:^|\/)([0-9a-f]{64})(?:\.json)?$/.exec(name)?.[1];
  if (hex !== undefined && archive.find(name)?.sha256 !== hex) throw invalid("has a configuration of another digest");
  checkPlatform(config);
  const diffIds =
    config["rootfs"] === undefined ? [] : list(object(config["rootfs"], "rootfs")["diff_ids"], "diff_ids");
  const layers: string[] = [];
  for (const [i, value] of list(entry["Layers"], "the manifest's layers").entries()) {
    const blob = archive.find(String(value));
    if (blob === undefined) throw invalid(`lacks the layer ${printable(String(value))}`);
    // An uncompressed layer's digest stands in the configuration.
    const wanted = diffIds[i];
    if (wanted !== undefined && wanted !== `sha256:${blob.sha256}` && !(await isCompressed(blob.file))) {
      throw invalid(`has a layer of another digest: ${printable(String(value))}`);
    }
    layers.push(blob.file);
  }
  return image(config, layers, limits);
}

function image(config: Json, layers: string[], limits: ImportLimits): Image {
  if (layers.length === 0) throw invalid("has no layers");
  if (layers.length > limits.maxLayers) {
    throw new DsecError("ARCHIVE_LIMIT", `the image has ${layers.length} layers, more than ${limits.maxLayers}`);
  }
  const run = config["config"] === undefined || config["config"] === null ? {} : object(config["config"], "its config");
  const labels = run["Labels"] === undefined || run["Labels"] === null ? {} : object(run["Labels"], "its labels");
  return {
    layers,
    config: create(ImageConfigSchema, {
      env: texts(run["Env"]),
      user: text(run["User"]),
      workingDir: text(run["WorkingDir"]),
      entrypoint: texts(run["Entrypoint"]),
      cmd: texts(run["Cmd"]),
      labels: Object.fromEntries(Object.entries(labels).map(([key, value]) => [key, text(value)])),
    }),
  };
}

const text = (value: unknown): string => (typeof value === "string" ? value : "");

function texts(value: unknown): string[] {
  if (typeof value === "string") return [value];
  return Array.isArray(value) ? value.filter((item) => typeof item === "string") : [];
}

function object(value: unknown, what: string): Json {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw invalid(`has no object for ${what}`);
  return value as Json;
}

function list(value: unknown, what: string): unknown[] {
  if (!Array.isArray(value)) throw invalid(`has no list for ${what}`);
  return value;
}

function invalid(message: string): DsecError {
  return new DsecError("ARCHIVE_INVALID", `the image ${message}`);
}
