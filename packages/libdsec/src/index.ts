export { type ClientOptions, DSecClient, type ListOptions } from "./client.ts";
export { Command } from "./command.ts";
export type { CommandLine, CommandOptions, ExecOptions, InputSource, PtyOptions } from "./command-options.ts";
export type { CreateManyOptions, CreateManyResult } from "./create-many.ts";
export {
  ConnectionError,
  DsecError,
  type ErrorReason,
  isInfrastructureError,
  isInterruption,
  isReason,
  isSandboxGone,
} from "./errors.ts";
export type { AsUser, FileEvent, FileInfo, Files, RemotePath, WriteOptions } from "./files/files.ts";
export { tarOf } from "./files/tar-write.ts";
export type { DownloadOptions, DownloadReport, UploadOptions } from "./files/transfer.ts";
export { type UnpackReport, unpack } from "./files/unpack.ts";
export type { Key, Keys, Project, Projects, Quota, RoleName } from "./iam.ts";
export type { Layer, LayerImport, LayerKind, Layers } from "./layers.ts";
export type { NodeInfo, Nodes } from "./nodes.ts";
export type { CommandStream, OutputChunk } from "./output-stream.ts";
export { type CommandInfo, type CommandOutcome, CommandResult } from "./results.ts";
export type { ContainerRunArgs, CreateOptions, NetworkRules, StartCommand } from "./run-args.ts";
export { Sandbox, type SandboxEvent, type SandboxUsage } from "./sandbox.ts";
export type { Notice, SandboxInfo } from "./sandbox-info.ts";
export { Session, type SessionOptions, type SessionRunOptions } from "./session.ts";
export { configFile, loadSettings, type Settings } from "./settings.ts";
export type { Terminal, TerminalOptions } from "./terminal.ts";
