// Images as other tools write them, by hand and small.
import { createHash } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pack } from "tar-stream";

export async function tarWith(files: Record<string, string | Buffer>): Promise<Buffer> {
  const tar = pack();
  for (const [name, content] of Object.entries(files)) tar.entry({ name }, content);
  tar.finalize();
  const parts: Buffer[] = [];
  for await (const part of tar as AsyncIterable<Buffer>) parts.push(part);
  return Buffer.concat(parts);
}

const sha256 = (content: Buffer) => createHash("sha256").update(content).digest("hex");

interface Image {
  layer: Buffer;
  config: Buffer;
}

async function imageOf(files: Record<string, string>, env: string[]): Promise<Image> {
  const layer = await tarWith(files);
  const config = Buffer.from(
    JSON.stringify({
      ...{ architecture: "amd64", os: "linux", config: { Env: env, WorkingDir: "/" } },
      rootfs: { type: "layers", diff_ids: [`sha256:${sha256(layer)}`] },
    }),
  );
  return { layer, config };
}

/** An OCI layout of one layer below `directory`. */
export async function ociLayout(directory: string, files: Record<string, string>, env: string[] = []): Promise<void> {
  const { layer, config } = await imageOf(files, env);
  mkdirSync(join(directory, "blobs/sha256"), { recursive: true });
  const blob = (content: Buffer, mediaType: string) => {
    writeFileSync(join(directory, "blobs/sha256", sha256(content)), content);
    return { mediaType, digest: `sha256:${sha256(content)}`, size: content.length };
  };
  const type = "application/vnd.oci.image";
  const manifest = {
    ...{ schemaVersion: 2, mediaType: `${type}.manifest.v1+json` },
    config: blob(config, `${type}.config.v1+json`),
    layers: [blob(layer, `${type}.layer.v1.tar`)],
  };
  const manifests = [blob(Buffer.from(JSON.stringify(manifest)), `${type}.manifest.v1+json`)];
  writeFileSync(join(directory, "index.json"), JSON.stringify({ schemaVersion: 2, manifests }));
  writeFileSync(join(directory, "oci-layout"), JSON.stringify({ imageLayoutVersion: "1.0.0" }));
}

/** What `docker save` writes, in its older form. */
export async function dockerSave(files: Record<string, string>, env: string[] = []): Promise<Buffer> {
  const { layer, config } = await imageOf(files, env);
  const name = `${sha256(config)}.json`;
  const manifest = [{ Config: name, RepoTags: ["test:1"], Layers: ["one/layer.tar"] }];
  return tarWith({ [name]: config, "one/layer.tar": layer, "manifest.json": JSON.stringify(manifest) });
}
