// Writes a tar from a sandbox below a local directory. The archive is hostile: names are checked, nothing is written
// through a link, no set-user bits, and links that lead outside are left out and reported.
import {
  chmodSync,
  closeSync,
  constants,
  fchmodSync,
  ftruncateSync,
  linkSync,
  lstatSync,
  mkdirSync,
  openSync,
  symlinkSync,
  unlinkSync,
  utimesSync,
  writeSync,
} from "node:fs";
import { DsecError, printable } from "@dsec/api";
import { type TarEntry, TarReader, type TarSink } from "./tar-read.ts";

export interface UnpackReport {
  files: number;
  bytes: number;
  /** Entries left out: devices, and links that lead out of the directory. */
  skipped: { name: string; why: string }[];
}

const slash = Buffer.from("/");

class Unpacker implements TarSink {
  readonly report: UnpackReport = { files: 0, bytes: 0, skipped: [] };
  readonly #root: Buffer;
  /** Directories known to be real ones; nothing here ever turns one into a link. */
  readonly #real = new Set<string>();
  readonly #modes: [path: Buffer, mode: number][] = [];
  #fd = -1;
  #current: { path: Buffer; entry: TarEntry } | undefined;

  constructor(root: string) {
    this.#root = Buffer.from(root);
  }

  entry(entry: TarEntry): void {
    const parts = this.#parts(entry.name);
    if (parts.length === 0) {
      if (entry.type !== "5") throw bad(entry.name, "is no name below the directory");
      return;
    }
    const last = parts.pop() as Buffer;
    const directory = this.#directory(parts);
    const path = Buffer.concat([directory, slash, last]);
    if (entry.type === "5") {
      this.#directory([...parts, last]);
      this.#modes.push([path, entry.mode & 0o777]);
    } else if (entry.type === "0") this.#open(path, entry);
    else if (entry.type === "2") this.#link(path, entry, parts.length);
    else if (entry.type === "1") this.#hardLink(path, entry);
    else this.#skip(entry.name, "neither file, directory nor link");
  }

  data(part: Buffer): void {
    for (let at = 0; at < part.length; ) at += writeSync(this.#fd, part, at);
    this.report.bytes += part.length;
  }

  end(): void {
    if (this.#fd < 0) return;
    const { path, entry } = this.#current as { path: Buffer; entry: TarEntry };
    closeSync(this.#fd);
    this.#fd = -1;
    utimesSync(path, entry.mtime, entry.mtime);
    this.report.files++;
  }

  /** Directories get their modes last, so that read-only ones can be filled. */
  finish(): void {
    for (const [path, mode] of this.#modes.reverse()) chmodSync(path, mode);
  }

  abandon(): void {
    if (this.#fd >= 0) closeSync(this.#fd);
    this.#fd = -1;
  }

  #parts(name: Buffer): Buffer[] {
    if (name[0] === 0x2f) throw bad(name, "is absolute");
    if (name.includes(0)) throw bad(name, "holds a NUL byte");
    const parts: Buffer[] = [];
    for (let at = 0; at <= name.length; ) {
      const found = name.indexOf(0x2f, at);
      const end = found < 0 ? name.length : found;
      const part = name.subarray(at, end);
      at = end + 1;
      const text = part.toString("latin1");
      if (text === "..") throw bad(name, "leads upwards");
      if (text !== "" && text !== ".") parts.push(part);
    }
    return parts;
  }

  /** Path of a directory below the root, made where it is missing; every part is seen to be no link. */
  #directory(parts: Buffer[]): Buffer {
    let path = this.#root;
    for (const part of parts) {
      path = Buffer.concat([path, slash, part]);
      const key = path.toString("latin1");
      if (this.#real.has(key)) continue;
      const stats = lstatSync(path, { throwIfNoEntry: false });
      if (!stats) mkdirSync(path, 0o755);
      else if (stats.isSymbolicLink()) throw bad(path, "lies behind a link");
      else if (!stats.isDirectory())
        throw new DsecError("NOT_A_DIRECTORY", `"${printable(path.toString())}" is no directory`);
      this.#real.add(key);
    }
    return path;
  }

  /** Removes a file or link that is there; a directory is never replaced. */
  #clear(path: Buffer): void {
    const stats = lstatSync(path, { throwIfNoEntry: false });
    if (stats?.isDirectory())
      throw new DsecError(
        "IS_A_DIRECTORY",
        `"${printable(path.toString())}" is a directory where the archive has a file`,
      );
    if (stats) unlinkSync(path);
  }

  #open(path: Buffer, entry: TarEntry): void {
    this.#clear(path);
    const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
    this.#fd = openSync(path, flags, 0o600);
    fchmodSync(this.#fd, entry.mode & 0o777);
    if (entry.size === 0) ftruncateSync(this.#fd, 0);
    this.#current = { path, entry };
  }

  #link(path: Buffer, entry: TarEntry, depth: number): void {
    if (leadsOutside(entry.link, depth)) {
      this.#skip(entry.name, "a link that leads out of the directory");
      return;
    }
    this.#clear(path);
    symlinkSync(entry.link, path);
  }

  #hardLink(path: Buffer, entry: TarEntry): void {
    const parts = this.#parts(entry.link);
    const last = parts.pop();
    if (!last) throw bad(entry.link, "is no name below the directory");
    const target = Buffer.concat([this.#directory(parts), slash, last]);
    if (!lstatSync(target, { throwIfNoEntry: false })?.isFile())
      throw new DsecError(
        "ARCHIVE_INVALID",
        `a hard link to "${printable(entry.link.toString())}", which is no file of the archive`,
      );
    this.#clear(path);
    linkSync(target, path);
    this.report.files++;
  }

  #skip(name: Buffer, why: string): void {
    this.report.skipped.push({ name: name.toString("utf8"), why });
  }
}

/** A relative target that never climbs above the root stays inside, whatever other links of the tree say. */
function leadsOutside(target: Buffer, depth: number): boolean {
  if (target.length === 0 || target[0] === 0x2f) return true;
  let level = depth;
  let descended = false;
  for (const part of target.toString("latin1").split("/")) {
    if (part === "" || part === ".") continue;
    if (part === "..") {
      // Upwards after a name: that name may be a link, so where it leads cannot be told from the text.
      if (descended || --level < 0) return true;
    } else descended = true;
  }
  return false;
}

function bad(name: Buffer, why: string): DsecError {
  return new DsecError("PATH_LEAVES_ROOT", `the archive's name "${printable(name.toString("utf8"))}" ${why}`);
}

/** Unpacks below `root`, an existing directory. */
export async function unpack(archive: AsyncIterable<Uint8Array>, root: string): Promise<UnpackReport> {
  const unpacker = new Unpacker(root);
  const reader = new TarReader(unpacker);
  try {
    for await (const part of archive) reader.push(Buffer.from(part.buffer, part.byteOffset, part.byteLength));
    reader.finish();
    unpacker.finish();
  } finally {
    unpacker.abandon();
  }
  return unpacker.report;
}
