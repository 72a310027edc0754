// Files and trees between here and a sandbox.
import { createReadStream, lstatSync, mkdirSync, statSync } from "node:fs";
import { open, rename, rm } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { DsecError, printable, randomBase32 } from "@dsec/api";
import type { AsUser, Files, RemotePath } from "./files.ts";
import { tarOf } from "./tar-write.ts";
import { type UnpackReport, unpack } from "./unpack.ts";

export interface UploadOptions extends AsUser {
  /** Make missing directories above the target. Default true. */
  parents?: boolean | undefined;
}

export type DownloadOptions = AsUser;
export type DownloadReport = UnpackReport;

export interface UploadReport {
  /** Entries left out: sockets, pipes and devices. */
  skipped: { name: string; why: string }[];
}

export async function uploadPath(
  files: Files,
  localPath: string,
  remotePath: RemotePath,
  options: UploadOptions,
): Promise<UploadReport> {
  const stats = statSync(localPath, { throwIfNoEntry: false });
  if (!stats) throw new DsecError("FILE_NOT_FOUND", `"${printable(localPath)}" is not here`);
  if (stats.isDirectory()) {
    const report: UploadReport = { skipped: [] };
    const leftOut = (name: string, why: string) => void report.skipped.push({ name, why });
    await files.writeTree(remotePath, tarOf(resolve(localPath), leftOut), options);
    return report;
  }
  if (!stats.isFile())
    throw new DsecError("INVALID_ARGUMENT", `"${printable(localPath)}" is neither a file nor a directory`);
  const source = createReadStream(localPath, { highWaterMark: 1 << 20 });
  await files.write(remotePath, source, { ...options, parents: options.parents ?? true, mode: stats.mode & 0o777 });
  return { skipped: [] };
}

export async function downloadPath(
  files: Files,
  remotePath: RemotePath,
  localPath: string,
  options: DownloadOptions,
): Promise<DownloadReport> {
  const info = await files.stat(remotePath, options);
  if (info.type !== "directory") return downloadFile(files, remotePath, localPath, info.mode & 0o777, options);
  mkdirSync(localPath, { recursive: true });
  return unpack(files.readTree(remotePath, options), resolve(localPath));
}

/** The old file stays until the new one is whole. */
async function downloadFile(
  files: Files,
  remotePath: RemotePath,
  localPath: string,
  mode: number,
  options: DownloadOptions,
): Promise<DownloadReport> {
  const target = resolve(localPath);
  if (lstatSync(target, { throwIfNoEntry: false })?.isDirectory())
    throw new DsecError("IS_A_DIRECTORY", `"${printable(localPath)}" is a directory here`);
  mkdirSync(dirname(target), { recursive: true });
  const part = join(dirname(target), `.${basename(target).slice(0, 200)}.${randomBase32(8)}.part`);
  const out = await open(part, "wx", 0o600);
  let bytes = 0;
  try {
    for await (const piece of files.readStream(remotePath, options)) {
      await out.writeFile(piece);
      bytes += piece.length;
    }
    await out.chmod(mode);
    await out.close();
    await rename(part, target);
  } catch (error) {
    await out.close().catch(() => {});
    await rm(part, { force: true });
    throw error;
  }
  return { files: 1, bytes, skipped: [] };
}
