// Tells a docker save file and an OCI layout from another tar by the names in it.
import { createReadStream } from "node:fs";
import { open } from "node:fs/promises";
import type { Readable } from "node:stream";
import { createGunzip, createZstdDecompress } from "node:zlib";
import { extract } from "tar-stream";

export type ArchiveFormat = "tar" | "oci-archive" | "docker-archive";

/** Reads the names alone. A docker save file of today holds both: it counts as docker's. What cannot be read is left to the server. */
export async function guessArchive(path: string): Promise<ArchiveFormat> {
  const file = await open(path);
  const magic = Buffer.alloc(4);
  await file.read(magic, 0, 4, 0);
  await file.close();
  const names = new Set<string>();
  const tar = extract();
  const input = createReadStream(path);
  const plain: Readable =
    magic[0] === 0x1f && magic[1] === 0x8b
      ? input.pipe(createGunzip())
      : magic.readUInt32LE(0) === 0xfd2fb528
        ? input.pipe(createZstdDecompress())
        : input;
  const fail = (error: Error) => tar.destroy(error);
  input.on("error", fail);
  plain.on("error", fail);
  plain.pipe(tar);
  try {
    for await (const entry of tar) {
      names.add(entry.header.name.replace(/^\.\//, ""));
      entry.resume();
      if (names.has("manifest.json")) break;
      // A root file system shows itself early; images have few top names.
      if (names.size > 20_000) break;
    }
  } catch {
    // Damaged: the server says where.
  } finally {
    input.destroy();
  }
  if (names.has("manifest.json")) return "docker-archive";
  return names.has("oci-layout") && names.has("index.json") ? "oci-archive" : "tar";
}
