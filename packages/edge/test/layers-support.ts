// Images made by hand, and layers mounted to look at them.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  createReadStream,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { type ImportOptions, LayerStore } from "../src/layers/index.ts";

/** The newest mklayer that cargo made. */
export function mklayerProgram(): string {
  const target = join(import.meta.dirname, "../../../native/target");
  const built = ["release", "debug"].map((profile) => join(target, profile, "mklayer")).filter(existsSync);
  const [newest] = built.sort((a, b) => statSync(b).mtimeMs - statSync(a).mtimeMs);
  if (newest === undefined) throw new Error("mklayer is not built: cargo build -p mklayer in native/");
  return newest;
}

/** A directory that goes with all that is in it and mounted below it. */
export class Scratch implements Disposable {
  // Not /tmp, which may be in memory: the kernel mounts no layer whose file is there.
  readonly path = mkdtempSync(join(process.env["TMPDIR"] ?? "/var/tmp", "dsec-layers-"));
  readonly #mounts: string[] = [];

  join(...parts: string[]): string {
    return join(this.path, ...parts);
  }

  dir(name: string): string {
    mkdirSync(this.join(name), { recursive: true });
    return this.join(name);
  }

  store(edge = "test", maxImports = 2): Promise<LayerStore> {
    return LayerStore.open({ dataDir: this.dir("data"), edge, mklayer: mklayerProgram(), maxImports });
  }

  /** Mounts a layer by the new mount API, which needs no loop device; perl can make any system call. */
  mount(layer: string): string {
    const at = this.dir(`mnt-${this.#mounts.length}`);
    const script = `
      my ($meta, $data, $at) = @ARGV; my $key = "erofs";
      my $fs = syscall(430, $key, 0); die "fsopen: $!" if $fs < 0;
      $key = "source"; die "source: $!" if syscall(431, $fs, 1, $key, $meta, 0) < 0;
      $key = "device"; if (-s $data) { die "device: $!" if syscall(431, $fs, 1, $key, $data, 0) < 0; }
      die "create: $!" if syscall(431, $fs, 6, 0, 0, 0) < 0;
      my $m = syscall(432, $fs, 0, 0); die "fsmount: $!" if $m < 0;
      my $empty = ""; die "move_mount: $!" if syscall(429, $m, $empty, -100, $at, 4) < 0;`;
    execFileSync("perl", ["-e", script, join(layer, "meta.erofs"), join(layer, "data"), at]);
    this.#mounts.push(at);
    return at;
  }

  [Symbol.dispose](): void {
    for (const at of this.#mounts) execFileSync("umount", [at]);
    rmSync(this.path, { recursive: true, force: true });
  }
}

export function sh(cwd: string, script: string): string {
  return execFileSync("bash", ["-euc", script], {
    cwd,
    encoding: "utf8",
    maxBuffer: 1 << 28,
    stdio: ["ignore", "pipe", "pipe"],
  });
}

/** All of a tree that GNU tar sees, attributes aside, as one hash. */
export function seen(tree: string): string {
  const options = "--numeric-owner --sort=name --format=pax --pax-option=delete=atime,delete=ctime";
  return sh(tree, `tar ${options} -c . | sha256sum`);
}

/** A layer: a tar of what the script makes in an empty directory, with fixed times. */
export function layerTar(scratch: Scratch, name: string, script: string, compress = "cat"): string {
  const tree = scratch.dir(`tree-${name}`);
  sh(tree, `${script}\nfind . -depth -exec touch -h -d @1700000000 {} +`);
  const file = scratch.join(`${name}.tar`);
  sh(
    tree,
    `tar --xattrs --xattrs-include='*' --numeric-owner --format=pax --sort=name -S -c . | ${compress} > ${file}`,
  );
  return file;
}

export interface LayoutOptions {
  readonly config?: object;
  /** What becomes of a blob on its way into the layout. */
  readonly spoil?: (blob: Buffer, kind: "layer" | "config" | "manifest") => Buffer;
  readonly platform?: { os: string; architecture: string };
  readonly index?: (own: object) => object;
}

export const here = { os: "linux", architecture: process.arch === "x64" ? "amd64" : process.arch };

/** An OCI layout of layers, as a tar of its directory. */
export function ociArchive(scratch: Scratch, layers: readonly string[], options: LayoutOptions = {}): string {
  const dir = scratch.dir(`layout-${Math.random().toString(36).slice(2)}`);
  mkdirSync(join(dir, "blobs/sha256"), { recursive: true });
  const put = (bytes: Buffer, kind: "layer" | "config" | "manifest") => {
    const hex = sha256(bytes);
    writeFileSync(join(dir, "blobs/sha256", hex), options.spoil?.(bytes, kind) ?? bytes);
    return { digest: `sha256:${hex}`, size: bytes.length };
  };
  const media = "application/vnd.oci.image";
  const descriptors = layers.map((file) => ({
    mediaType: `${media}.layer.v1.tar+gzip`,
    ...put(readFileSync(file), "layer"),
  }));
  const config = {
    ...here,
    ...options.platform,
    config: options.config ?? {},
    rootfs: { type: "layers", diff_ids: [] },
  };
  const configBlob = put(Buffer.from(JSON.stringify(config)), "config");
  const manifest = {
    schemaVersion: 2,
    config: { mediaType: `${media}.config.v1+json`, ...configBlob },
    layers: descriptors,
  };
  const own = { mediaType: `${media}.manifest.v1+json`, ...put(Buffer.from(JSON.stringify(manifest)), "manifest") };
  writeFileSync(
    join(dir, "index.json"),
    JSON.stringify(options.index?.(own) ?? { schemaVersion: 2, manifests: [own] }),
  );
  writeFileSync(join(dir, "oci-layout"), '{"imageLayoutVersion":"1.0.0"}');
  return tarOf(dir);
}

/** What `docker save` of before version 25 wrote: a directory a layer, equal ones linked. */
export function dockerArchive(scratch: Scratch, layers: readonly string[], config: object): string {
  const dir = scratch.dir(`docker-${Math.random().toString(36).slice(2)}`);
  const known = new Map<string, string>();
  const names = layers.map((file, i) => {
    const bytes = readFileSync(file);
    const first = known.get(sha256(bytes));
    const id = sha256(Buffer.from(`layer ${i}`));
    mkdirSync(join(dir, id));
    if (first) sh(join(dir, id), `ln -s ../${first}/layer.tar layer.tar`);
    else writeFileSync(join(dir, id, "layer.tar"), bytes);
    known.set(sha256(bytes), first ?? id);
    return `${id}/layer.tar`;
  });
  const diffIds = layers.map((file) => `sha256:${sha256(readFileSync(file))}`);
  const json = JSON.stringify({ ...here, config, rootfs: { type: "layers", diff_ids: diffIds } });
  const configName = `${sha256(Buffer.from(json))}.json`;
  writeFileSync(join(dir, configName), json);
  writeFileSync(join(dir, "manifest.json"), JSON.stringify([{ Config: configName, RepoTags: ["x:1"], Layers: names }]));
  return tarOf(dir);
}

export function tarOf(dir: string): string {
  sh(dir, `tar -cf ../${dir.split("/").pop()}.tar .`);
  return `${dir}.tar`;
}

export const sha256 = (bytes: Buffer): string => createHash("sha256").update(bytes).digest("hex");

export function importFile(store: LayerStore, file: string, options: Omit<ImportOptions, "body">) {
  return store.import({ ...options, body: createReadStream(file) });
}

/** The reason of the DsecError that the promise is rejected with. */
export async function reasonOf(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
    return "nothing went wrong";
  } catch (error) {
    return (error as { reason?: string }).reason ?? String(error);
  }
}
