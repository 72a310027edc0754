// The outer tar of an image: its files go to numbered files in staging, with their digests. Names in it are only keys.
import { createHash } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { readFile } from "node:fs/promises";
import { join, posix } from "node:path";
import { PassThrough, type Readable, Transform, type TransformCallback } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGunzip, createZstdDecompress } from "node:zlib";
import { DsecError, printable } from "@dsec/api";
import { extract } from "tar-stream";
import { cancelled, cutUpload } from "./builder.ts";
import { type ImportLimits, maxJsonBytes } from "./limits.ts";

export interface Blob {
  readonly file: string;
  readonly bytes: number;
  /** Hex. */
  readonly sha256: string;
}

export class ImageArchive {
  readonly #blobs = new Map<string, Blob>();
  readonly #links = new Map<string, string>();

  /** The file of that name in the archive; links between its files (`docker save` of old) are followed. */
  find(name: string): Blob | undefined {
    let key = posix.normalize(name);
    for (let i = 0; i < 4; i++) {
      const target = this.#links.get(key);
      if (target === undefined) return this.#blobs.get(key);
      key = posix.join(posix.dirname(key), target);
    }
    return undefined;
  }

  /** Its contents; `undefined` where there is no such file. */
  async json(name: string): Promise<unknown> {
    const blob = this.find(name);
    if (blob === undefined) return undefined;
    if (blob.bytes > maxJsonBytes)
      throw new DsecError("ARCHIVE_LIMIT", `${printable(name)} is larger than ${maxJsonBytes} bytes`);
    try {
      return JSON.parse(await readFile(blob.file, "utf8"));
    } catch (error) {
      throw new DsecError("ARCHIVE_INVALID", `${printable(name)} in the image is no JSON`, { cause: error });
    }
  }

  /** Spools `body` (a tar, also gzip or zstd) into `dir`. */
  static async read(body: Readable, dir: string, limits: ImportLimits, signal?: AbortSignal): Promise<ImageArchive> {
    const archive = new ImageArchive();
    const tar = extract();
    const upload = limited(body, limits.uploadBytes);
    const unpacked = new ByteLimit(limits.maxBytes, "the unpacked image");
    const source = [upload, await decoder(upload, signal), unpacked];
    // tar-stream destroys itself when the pipeline fails, which ends the loop with the same error.
    const feeding = pipeline([...source, tar], { signal });
    const reading = archive.#takeAll(tar, dir, limits);
    const [fed, taken] = await Promise.allSettled([feeding, reading]);
    const errors = [taken, fed].flatMap((r) => (r.status === "rejected" ? [r.reason as NodeJS.ErrnoException] : []));
    if (errors.length > 0) throw typed(errors, signal);
    return archive;
  }

  async #takeAll(tar: ReturnType<typeof extract>, dir: string, limits: ImportLimits): Promise<void> {
    let number = 0;
    for await (const entry of tar) {
      const { name, type, linkname } = entry.header;
      const key = posix.normalize(name);
      if (++number > limits.maxBlobs)
        throw new DsecError("ARCHIVE_LIMIT", `the image has more than ${limits.maxBlobs} files`);
      if (type === "symlink" || type === "link") {
        // A hard link's target counts from the archive's root.
        this.#links.set(key, type === "link" ? posix.relative(posix.dirname(key), linkname ?? "") : (linkname ?? ""));
      }
      if (type !== "file" && type !== "contiguous-file") {
        entry.resume();
        continue;
      }
      const blob = await spool(entry as unknown as Readable, join(dir, String(number)));
      const named = /^blobs\/sha256\/(.*)$/.exec(key)?.[1];
      if (named !== undefined && named !== blob.sha256) {
        throw new DsecError("ARCHIVE_INVALID", `the blob ${printable(named)} has other content than its digest says`);
      }
      this.#blobs.set(key, blob);
      this.#links.delete(key);
    }
  }
}

async function spool(entry: Readable, file: string): Promise<Blob> {
  const hash = createHash("sha256");
  let bytes = 0;
  const counted = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      bytes += chunk.length;
      hash.update(chunk);
      done(null, chunk);
    },
  });
  await pipeline(entry, counted, createWriteStream(file, { flags: "wx", mode: 0o600 }));
  return { file, bytes, sha256: hash.digest("hex") };
}

/** What unpacks the stream; told by its first bytes. */
async function decoder(body: Readable, signal?: AbortSignal): Promise<Transform> {
  const head = await firstBytes(body, signal);
  if (head.length >= 2 && head[0] === 0x1f && head[1] === 0x8b) return createGunzip();
  if (head.length >= 4 && head.readUInt32LE(0) === 0xfd2fb528) return createZstdDecompress();
  return new PassThrough();
}

/** The first bytes of a stream; they stay in it. */
async function firstBytes(body: Readable, signal?: AbortSignal): Promise<Buffer> {
  const parts: Buffer[] = [];
  while (Buffer.concat(parts).length < 4) {
    if (signal?.aborted) throw cancelled();
    const part = body.read() as Buffer | null;
    if (part !== null) {
      parts.push(Buffer.from(part));
    } else if (body.readableEnded || body.destroyed || !(await more(body, signal))) {
      break;
    }
  }
  if (signal?.aborted) throw cancelled();
  if (body.errored) throw body.errored instanceof DsecError ? body.errored : cutUpload(body.errored);
  const head = Buffer.concat(parts);
  if (head.length === 0) throw new DsecError("ARCHIVE_INVALID", "the upload is empty");
  body.unshift(head);
  return head;
}

function more(body: Readable, signal?: AbortSignal): Promise<boolean> {
  return new Promise((resolve) => {
    const settle = (value: boolean) => () => {
      body.off("readable", onReadable).off("end", onEnd).off("close", onEnd).off("error", onEnd);
      signal?.removeEventListener("abort", onEnd);
      resolve(value);
    };
    const [onReadable, onEnd] = [settle(true), settle(false)];
    body.once("readable", onReadable).once("end", onEnd).once("close", onEnd).once("error", onEnd);
    signal?.addEventListener("abort", onEnd, { once: true });
  });
}

/** The upload up to a limit. What goes wrong behind it leaves the body itself alone, so that it can still be answered. */
export function limited(body: Readable, most: number): Transform {
  const limit = new ByteLimit(most, "the upload");
  const onError = (error: Error) => limit.destroy(cutUpload(error));
  const onClose = () => body.readableEnded || limit.destroy(cutUpload());
  body.once("error", onError).once("close", onClose);
  limit.once("close", () => {
    body.unpipe(limit);
    body.off("error", onError).off("close", onClose);
  });
  // Whoever reads it may come later than the fault.
  limit.on("error", () => {});
  if (body.destroyed) limit.destroy(cutUpload(body.errored ?? undefined));
  return body.pipe(limit);
}

/** Passes bytes on and fails with ARCHIVE_LIMIT beyond `most`. */
class ByteLimit extends Transform {
  #left: number;
  readonly #message: string;

  constructor(most: number, what: string) {
    super();
    this.#left = most;
    this.#message = `${what} is larger than ${most} bytes`;
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    this.#left -= chunk.length;
    if (this.#left < 0) done(new DsecError("ARCHIVE_LIMIT", this.#message));
    else done(null, chunk);
  }
}

function typed(errors: NodeJS.ErrnoException[], signal?: AbortSignal): DsecError {
  if (signal?.aborted) return cancelled();
  const known = errors.find((error) => error instanceof DsecError);
  if (known) return known as DsecError;
  const full = errors.find((error) => error.code === "ENOSPC" || error.code === "EDQUOT");
  if (full) return new DsecError("CAPACITY_FULL", "the node has no room for the upload", { cause: full });
  const cut = errors.find((error) => error.code === "ERR_STREAM_PREMATURE_CLOSE" || error.message === "aborted");
  if (cut) return cutUpload(cut);
  const [error] = errors;
  return new DsecError("ARCHIVE_INVALID", `the image's archive cannot be read: ${error?.message ?? ""}`, {
    cause: error,
  });
}

/** Whether a file begins as gzip or zstd does. */
export async function isCompressed(file: string): Promise<boolean> {
  for await (const chunk of createReadStream(file, { end: 3 })) {
    const head = chunk as Buffer;
    return (head[0] === 0x1f && head[1] === 0x8b) || (head.length >= 4 && head.readUInt32LE(0) === 0xfd2fb528);
  }
  return false;
}
