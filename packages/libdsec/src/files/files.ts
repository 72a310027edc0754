// Files of a sandbox, as its user (or the one given) sees them. No path leads out of the sandbox's root.
import { DsecError, FileService, type FileInfo as WireFileInfo } from "@dsec/api";
import { toBytes } from "../command-options.ts";
import { isReason } from "../errors.ts";
import { fileEventName, fileTypeName } from "../names.ts";
import { type BodySource, collectBody, readBody, sendBody } from "../transport/body.ts";
import type { Calls } from "../transport/calls.ts";
import { serverStream } from "../transport/server-stream.ts";
import {
  type DownloadOptions,
  type DownloadReport,
  downloadPath,
  type UploadOptions,
  type UploadReport,
  uploadPath,
} from "./transfer.ts";

/** A string is UTF-8; bytes are for names that are not. Absolute, or relative to the sandbox's working directory. */
export type RemotePath = string | Uint8Array;

export interface AsUser {
  /** Name or number. Default: the sandbox's init user. */
  user?: string | undefined;
  signal?: AbortSignal | undefined;
}

export interface FileInfo {
  /** Last part of the path as UTF-8; `nameBytes` has the bytes. */
  name: string;
  nameBytes: Uint8Array;
  /** "file", "directory", "symlink", "other". */
  type: string;
  sizeBytes: number;
  /** Permission bits, 0 to 0o7777. */
  mode: number;
  uid: number;
  gid: number;
  modifiedAt: Date;
  /** Of a link, else "". */
  linkTarget: string;
}

export interface FileEvent {
  /** "ready", "created", "modified", "removed", "moved_from", "moved_to", "attributes", "overflow" (list again). */
  type: string;
  /** Relative to the watched directory. */
  path: string;
}

export interface WriteOptions extends AsUser {
  /** Permission bits. Default: those of the file it replaces, else 0o644. */
  mode?: number | undefined;
  /** Make missing directories above it. */
  parents?: boolean | undefined;
}

export class Files {
  readonly #calls: Calls;
  readonly #id: string;

  constructor(calls: Calls, sandboxId: string) {
    this.#calls = calls;
    this.#id = sandboxId;
  }

  /** Whole content; `offset` and `length` in bytes give a part. @throws DsecError FILE_NOT_FOUND, IS_A_DIRECTORY, FILE_PERMISSION */
  read(path: RemotePath, options: AsUser & { offset?: number; length?: number } = {}): Promise<Uint8Array> {
    return collectBody(this.#calls, this.#body("GET", "file", path, options, range(options)));
  }

  /** Whole content as UTF-8. */
  async readText(path: RemotePath, options: AsUser = {}): Promise<string> {
    const bytes = await this.read(path, options);
    return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("utf8");
  }

  /** Content in pieces. A connection that breaks throws: what was given is a beginning. */
  async *readStream(
    path: RemotePath,
    options: AsUser & { offset?: number; length?: number } = {},
  ): AsyncGenerator<Uint8Array, void, void> {
    yield* readBody(this.#calls, this.#body("GET", "file", path, options, range(options)));
  }

  /** Replaces the file at once when all is there; a failed write leaves the old one. */
  async write(path: RemotePath, content: BodySource, options: WriteOptions = {}): Promise<void> {
    const query: Record<string, string> = {};
    if (options.mode !== undefined) query.mode = octal(options.mode);
    if (options.parents) query.parents = "1";
    await sendBody(this.#calls, this.#body("PUT", "file", path, options, query), content);
  }

  /** Describes what is at the path; `follow: false` describes a link itself. */
  async stat(path: RemotePath, options: AsUser & { follow?: boolean } = {}): Promise<FileInfo> {
    const { file } = await this.#calls.call(
      FileService.method.stat,
      { ...this.#at(path, options), follow: options.follow ?? true },
      this.#settings(options),
    );
    if (!file) throw new DsecError("INTERNAL", "the answer to a stat holds no file");
    return fileInfoOf(file);
  }

  /** Something is there, be it a link that leads nowhere. */
  async exists(path: RemotePath, options: AsUser = {}): Promise<boolean> {
    try {
      await this.stat(path, { ...options, follow: false });
      return true;
    } catch (error) {
      if (isReason(error, "FILE_NOT_FOUND", "NOT_A_DIRECTORY")) return false;
      throw error;
    }
  }

  /** Entries of a directory, sorted by name as bytes. */
  async list(path: RemotePath, options: AsUser = {}): Promise<FileInfo[]> {
    const entries: FileInfo[] = [];
    for await (const entry of this.entries(path, options)) entries.push(entry);
    return entries;
  }

  /** The same, page by page, for large directories. */
  async *entries(path: RemotePath, options: AsUser & { pageSize?: number } = {}): AsyncGenerator<FileInfo, void, void> {
    let pageToken = "";
    do {
      const page = await this.#calls.call(
        FileService.method.listDirectory,
        { ...this.#at(path, options), pageSize: options.pageSize ?? 5000, pageToken },
        this.#settings(options),
      );
      for (const entry of page.entries) yield fileInfoOf(entry);
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
  }

  /** Makes a directory, by default with those above it, and accepts that it is there. */
  async mkdir(path: RemotePath, options: AsUser & { parents?: boolean; mode?: number } = {}): Promise<void> {
    const parents = options.parents ?? true;
    await this.#calls.call(
      FileService.method.makeDirectory,
      { ...this.#at(path, options), parents, mode: options.mode ?? 0 },
      { ...this.#settings(options), harmless: parents },
    );
  }

  /** Moves or renames. @throws DsecError FILE_EXISTS unless `overwrite` */
  async move(from: RemotePath, to: RemotePath, options: AsUser & { overwrite?: boolean } = {}): Promise<void> {
    await this.#calls.call(
      FileService.method.move,
      {
        sandboxId: this.#id,
        fromPath: toBytes(from),
        toPath: toBytes(to),
        user: options.user ?? "",
        overwrite: options.overwrite ?? false,
      },
      { ...this.#settings(options), harmless: false },
    );
  }

  /** Removes a file, or with `recursive` a tree. */
  async remove(path: RemotePath, options: AsUser & { recursive?: boolean; missingOk?: boolean } = {}): Promise<void> {
    const missingOk = options.missingOk ?? false;
    await this.#calls.call(
      FileService.method.remove,
      { ...this.#at(path, options), recursive: options.recursive ?? false, missingOk },
      { ...this.#settings(options), harmless: missingOk },
    );
  }

  /** Changes below a directory from the "ready" event on, until the caller leaves the loop. */
  async *watch(
    path: RemotePath,
    options: AsUser & { recursive?: boolean } = {},
  ): AsyncGenerator<FileEvent, void, void> {
    const request = { ...this.#at(path, options), recursive: options.recursive ?? false };
    for await (const { events } of serverStream(this.#calls, FileService.method.watch, request, {
      sandboxId: this.#id,
      signal: options.signal,
    })) {
      for (const event of events)
        yield { type: fileEventName(event.type), path: Buffer.from(event.path).toString("utf8") };
    }
  }

  /** Sends a local file or tree; `remotePath` is what it becomes. Modes are kept, owners are the sandbox's user. */
  upload(localPath: string, remotePath: RemotePath, options: UploadOptions = {}): Promise<UploadReport> {
    return uploadPath(this, localPath, remotePath, options);
  }

  /** Fetches a file or tree; `localPath` is what it becomes. Nothing is written outside it, whatever the sandbox sends. */
  download(remotePath: RemotePath, localPath: string, options: DownloadOptions = {}): Promise<DownloadReport> {
    return downloadPath(this, remotePath, localPath, options);
  }

  /** A tar (pax) of a tree, names relative to the path. */
  async *readTree(path: RemotePath, options: AsUser = {}): AsyncGenerator<Uint8Array, void, void> {
    yield* readBody(this.#calls, this.#body("GET", "tree", path, options, {}));
  }

  /** Unpacks a tar below the path, which is made. */
  async writeTree(path: RemotePath, tar: BodySource, options: AsUser = {}): Promise<void> {
    await sendBody(this.#calls, this.#body("PUT", "tree", path, options, {}), tar);
  }

  #at(path: RemotePath, options: AsUser) {
    return { sandboxId: this.#id, path: toBytes(path), user: options.user ?? "" };
  }

  #settings(options: AsUser) {
    return { sandboxId: this.#id, signal: options.signal };
  }

  #body(
    method: "GET" | "PUT",
    what: "file" | "tree",
    path: RemotePath,
    options: AsUser,
    query: Record<string, string>,
  ) {
    let text = `/v1/sandboxes/${encodeURIComponent(this.#id)}/${what}?path=${percentEncoded(toBytes(path))}`;
    if (options.user) text += `&user=${encodeURIComponent(options.user)}`;
    for (const [name, value] of Object.entries(query)) text += `&${name}=${encodeURIComponent(value)}`;
    return { method, path: text, sandboxId: this.#id, signal: options.signal };
  }
}

function range({ offset, length }: { offset?: number; length?: number }): Record<string, string> {
  return {
    ...(offset !== undefined && { offset: String(offset) }),
    ...(length !== undefined && { length: String(length) }),
  };
}

function octal(mode: number): string {
  if (!Number.isInteger(mode) || mode < 0 || mode > 0o7777)
    throw new DsecError("INVALID_ARGUMENT", `mode is ${mode}; it must be within 0 and 0o7777`);
  return `0${mode.toString(8)}`;
}

/** Every byte that is not unreserved in a URL as %XX, so that bytes which are no UTF-8 arrive too. */
export function percentEncoded(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) {
    const plain =
      (byte >= 0x30 && byte <= 0x39) ||
      (byte >= 0x41 && byte <= 0x5a) ||
      (byte >= 0x61 && byte <= 0x7a) ||
      byte === 0x2f ||
      byte === 0x2d ||
      byte === 0x2e ||
      byte === 0x5f;
    text += plain ? String.fromCharCode(byte) : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  }
  return text;
}

function fileInfoOf(wire: WireFileInfo): FileInfo {
  return {
    name: Buffer.from(wire.name).toString("utf8"),
    nameBytes: wire.name,
    type: fileTypeName(wire.type),
    sizeBytes: Number(wire.sizeBytes),
    mode: wire.mode,
    uid: wire.uid,
    gid: wire.gid,
    modifiedAt: new Date(Number(wire.modifiedAtMs)),
    linkTarget: Buffer.from(wire.linkTarget).toString("utf8"),
  };
}
