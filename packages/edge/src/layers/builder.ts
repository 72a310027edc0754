// Runs mklayer: archives in, one layer in a directory out.
import { spawn } from "node:child_process";
import type { Readable } from "node:stream";
import { DsecError, type ErrorReason, errorTable } from "@dsec/api";
import type { ImportLimits } from "./limits.ts";

export interface LayerJson {
  readonly version: number;
  readonly digest: string;
  readonly meta: { readonly sha256: string; readonly bytes: number };
  readonly data: { readonly sha256: string; readonly bytes: number };
  readonly entries: number;
  readonly builder: string;
}

export interface BuildOptions {
  readonly mklayer: string;
  /** An empty directory. */
  readonly out: string;
  /** Files, lowest first, or one stream. */
  readonly input: readonly string[] | Readable;
  readonly whiteouts: "plain" | "bottom" | "upper";
  readonly limits: ImportLimits;
  readonly signal?: AbortSignal | undefined;
  /** Unpacked bytes and entries of this build so far. */
  readonly onProgress?: ((bytes: number, entries: number) => void) | undefined;
}

export interface Built {
  readonly layer: LayerJson;
  /** Inputs that went into it; the rest stays for the next layer. */
  readonly inputs: number;
}

const maxOutput = 1 << 20;

/** Throws the DsecError that mklayer reports; `out` is empty then. */
export async function runMklayer(options: BuildOptions): Promise<Built> {
  const { limits, input, signal } = options;
  if (signal?.aborted) throw cancelled();
  const files = "pipe" in input ? undefined : input;
  const args = [
    ...["--out", options.out, `--${options.whiteouts}`, "--progress"],
    ...["--max-bytes", count(limits.maxBytes), "--max-entries", count(limits.maxEntries)],
    ...["--max-ratio", count(limits.maxRatio), "--max-depth", count(limits.maxDepth)],
    ...["--max-seconds", count(limits.maxSeconds), "--collapse-bytes", count(limits.collapseBytes)],
    ...(files ?? ["-"]),
  ];
  const child = spawn(options.mklayer, args, { env: {}, stdio: ["pipe", "pipe", "pipe"] });
  const stop = () => child.kill("SIGTERM");
  signal?.addEventListener("abort", stop, { once: true });
  let inputError: Error | undefined;
  if ("pipe" in input) {
    const fail = (error: Error) => {
      // The first says why; closing follows.
      inputError ??= error;
      stop();
    };
    if (input.destroyed) fail(input.errored ?? cutUpload());
    input.once("error", fail);
    input.once("close", () => input.readableEnded || fail(new Error("the upload was cut")));
    input.pipe(child.stdin);
  } else {
    child.stdin.end();
  }
  // mklayer may end before it has read all; its exit says why.
  child.stdin.on("error", () => {});
  let last = "";
  let rest = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    const lines = (rest + text).split("\n");
    rest = (lines.pop() ?? "").slice(0, maxOutput);
    for (const line of lines) {
      last = line;
      report(line, options.onProgress);
    }
  });
  let complaint = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    complaint = (complaint + text).slice(0, maxOutput);
  });
  try {
    const code = await new Promise<number | null>((resolve, reject) => {
      child.once("error", reject);
      child.once("close", resolve);
    });
    if (code === 0) return JSON.parse(last) as Built;
  } catch (error) {
    throw new DsecError("INTERNAL", `the layer builder could not run: ${(error as Error).message}`, { cause: error });
  } finally {
    signal?.removeEventListener("abort", stop);
    if ("pipe" in input) input.unpipe(child.stdin);
  }
  if (signal?.aborted) throw cancelled();
  if (inputError) throw inputError instanceof DsecError ? inputError : cutUpload(inputError);
  throw failure(complaint);
}

function report(line: string, onProgress: BuildOptions["onProgress"]): void {
  if (onProgress === undefined || !line.startsWith('{"bytes":')) return;
  const { bytes, entries } = JSON.parse(line) as { bytes: number; entries: number };
  onProgress(bytes, entries);
}

function failure(complaint: string): DsecError {
  try {
    const { reason, message } = JSON.parse(complaint) as { reason: string; message: string };
    if (reason === "DISK_FULL") return new DsecError("CAPACITY_FULL", `the node has no room for the layer: ${message}`);
    if (Object.hasOwn(errorTable, reason))
      return new DsecError(reason as ErrorReason, `the archive was refused: ${message}`);
  } catch {
    // Not the line that mklayer promises; told below.
  }
  return new DsecError("INTERNAL", `the layer builder failed: ${complaint.slice(0, 500) || "it said nothing"}`);
}

export function cancelled(): DsecError {
  return new DsecError("CANCELLED", "the import was given up");
}

export function cutUpload(cause?: Error): DsecError {
  return new DsecError("ARCHIVE_INVALID", "the upload ended before the archive did", { cause });
}

const count = (value: number): string => String(Math.max(1, Math.floor(value)));
