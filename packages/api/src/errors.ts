// The one table of errors. A reason is for ever; its message may be reworded.
import { Code } from "@connectrpc/connect";

export interface ErrorKind {
  readonly code: Code;
  /** The same call may succeed later without a change. */
  readonly retryable: boolean;
  /** What it means, for the documentation. */
  readonly meaning: string;
  /** What the caller does next; shown after the message. */
  readonly next: string;
}

const kind = (code: Code, retryable: boolean, meaning: string, next: string): ErrorKind => ({
  code,
  retryable,
  meaning,
  next,
});

// biome-ignore format: a table, one row a reason
export const errorTable = {
  // Arguments
  INVALID_ARGUMENT: kind(Code.InvalidArgument, false, "An argument is missing or not allowed.", "Correct the argument that the message names."),
  INVALID_LIMIT: kind(Code.InvalidArgument, false, "A limit is zero where that is not allowed, or below the minimum.", "Ask for at least the minimum that the message names."),
  INVALID_PATH: kind(Code.InvalidArgument, false, "A path is empty, too long or holds a NUL byte.", "Correct the path."),
  EMPTY_COMMAND: kind(Code.InvalidArgument, false, "The command is empty or only spaces.", "Give a program or shell text."),
  INVALID_NETWORK_RULE: kind(Code.InvalidArgument, false, "A network rule names neither a known service nor a domain.", "Use a service (npm, pypi, crates, go, debian, maven) or a domain such as *.example.org:443."),
  LAYER_KIND_MISMATCH: kind(Code.InvalidArgument, false, "A layer of one kind was given where another belongs.", "Give a layer of the kind that the message names."),
  INVALID_USER: kind(Code.InvalidArgument, false, "The user is not in the sandbox's /etc/passwd and is no number.", "Name a user of the image, or a number."),
  NOT_STRICT: kind(Code.FailedPrecondition, false, "strict was asked and this node cannot honour an argument.", "Drop strict, or the argument that the message names."),
  // Who may
  UNAUTHENTICATED: kind(Code.Unauthenticated, false, "No key, or one that is unknown, expired or revoked.", "Set DSEC_API_KEY to a valid key; `dsec key create` makes one."),
  PERMISSION_DENIED: kind(Code.PermissionDenied, false, "The key's role does not allow this.", "Use a key with the role that the message names."),
  NOT_CONFIGURED: kind(Code.FailedPrecondition, false, "The client has no endpoint or no key.", "Run `dsec up` here, or set DSEC_ENDPOINT and DSEC_API_KEY."),
  // Not there
  SANDBOX_NOT_FOUND: kind(Code.NotFound, false, "No such sandbox in the caller's project.", "Check the ID and the key; create a new sandbox."),
  SANDBOX_ENDED: kind(Code.NotFound, false, "The sandbox has ended; the metadata's end_reason says why.", "Create a new sandbox; extend its life or its idle time if it ended too soon."),
  SANDBOX_LOST: kind(Code.DataLoss, false, "The sandbox was lost with its state.", "Drop the sample and start again in a new sandbox."),
  COMMAND_NOT_FOUND: kind(Code.NotFound, false, "No command of that ID in this sandbox.", "Check the ID; list the commands."),
  SESSION_NOT_FOUND: kind(Code.NotFound, false, "No session of that ID in this sandbox.", "Open a session."),
  FILE_NOT_FOUND: kind(Code.NotFound, false, "No file or directory at that path.", "Check the path; list its directory."),
  LAYER_NOT_FOUND: kind(Code.NotFound, false, "No such image or layer in the project or in public/.", "List what is there: `dsec image ls`, `dsec layer ls`."),
  PROJECT_NOT_FOUND: kind(Code.NotFound, false, "No such project at or below the key's own.", "Check the path: `dsec project ls`."),
  KEY_NOT_FOUND: kind(Code.NotFound, false, "No such key in the projects that the caller administers.", "Check the ID: `dsec key ls`."),
  EDGE_NOT_FOUND: kind(Code.NotFound, false, "The ID names an edge that is not known here.", "Check the ID and the endpoint."),
  NO_SUCH_METHOD: kind(Code.Unimplemented, false, "The server knows no such method or path.", "Check the URL; compare the versions of client and server."),
  // There already, or in the wrong state
  IDEMPOTENCY_MISMATCH: kind(Code.AlreadyExists, false, "This key was used before with other arguments.", "Use a new key for a new request."),
  CREATE_SUPERSEDED: kind(Code.FailedPrecondition, false, "A retry of this create was answered before this attempt arrived.", "Take the retry's answer."),
  NAME_TAKEN: kind(Code.AlreadyExists, false, "The name is in use.", "Choose another name."),
  LAST_ADMIN_KEY: kind(Code.FailedPrecondition, false, "The key is the last one that administers the whole platform.", "Make another one first: `dsec key create --role admin`."),
  LAYER_IN_USE: kind(Code.FailedPrecondition, false, "A sandbox or another name uses the layer.", "Stop what the message names first."),
  PROJECT_IN_USE: kind(Code.FailedPrecondition, false, "The project has sandboxes, keys, layers or projects below it.", "Remove what the message names first."),
  SANDBOX_STOPPED: kind(Code.FailedPrecondition, false, "The sandbox was stopped and only its writable layer is kept.", "Nothing runs in it any more: delete it when it is not needed."),
  SANDBOX_NOT_READY: kind(Code.FailedPrecondition, true, "The sandbox is still being created.", "Wait until its state is RUNNING."),
  SESSION_BUSY: kind(Code.FailedPrecondition, true, "Another call runs in this session.", "Wait for it, or open a second session."),
  STDIN_CLOSED: kind(Code.FailedPrecondition, false, "The command takes no more input.", "Start it with stdin_open to write input."),
  NOT_A_TERMINAL: kind(Code.FailedPrecondition, false, "The command has no terminal.", "Start it with pty."),
  INPUT_GAP: kind(Code.FailedPrecondition, false, "The offset lies beyond what was taken.", "Go on at accepted_bytes."),
  // Files
  FILE_EXISTS: kind(Code.AlreadyExists, false, "Something is at that path already.", "Choose another path, or ask to overwrite."),
  FILE_PERMISSION: kind(Code.PermissionDenied, false, "The sandbox's user may not do that.", "Give another user."),
  NOT_A_DIRECTORY: kind(Code.FailedPrecondition, false, "A part of the path is no directory.", "Correct the path."),
  IS_A_DIRECTORY: kind(Code.FailedPrecondition, false, "The path is a directory where a file was wanted.", "Give a file, or transfer the tree."),
  DIRECTORY_NOT_EMPTY: kind(Code.FailedPrecondition, false, "The directory is not empty.", "Ask for recursive."),
  PATH_LEAVES_ROOT: kind(Code.InvalidArgument, false, "The path or a name in the archive leads out of the root.", "Remove `..`, absolute names and links that lead outside."),
  DISK_FULL: kind(Code.ResourceExhausted, false, "The sandbox's disk limit is reached.", "Remove files, or create it with a higher disk_limit_mb."),
  FILE_WORKER_ENDED: kind(Code.Unavailable, true, "The process that served the files was ended from inside the sandbox.", "Try again."),
  FILE_FAILED: kind(Code.FailedPrecondition, false, "The kernel refused a file operation.", "See the message for its word."),
  // Archives and images
  ARCHIVE_INVALID: kind(Code.InvalidArgument, false, "The archive or image is damaged, cut short or of an unknown form.", "Make it again; the message says where it breaks."),
  ARCHIVE_LIMIT: kind(Code.InvalidArgument, false, "The archive goes beyond a limit on bytes, entries, ratio, depth or time.", "Make it smaller, or ask the operator for a higher limit."),
  // Capacity
  CAPACITY_FULL: kind(Code.ResourceExhausted, true, "No node has room now.", "Wait and try again; the library does so until the create time is over."),
  QUOTA_EXCEEDED: kind(Code.ResourceExhausted, true, "The project's quota is used up.", "Stop sandboxes, or ask for a higher quota."),
  NEVER_FITS: kind(Code.ResourceExhausted, false, "No node is large enough for what was requested.", "Request less memory or CPU."),
  TOO_MANY_REQUESTS: kind(Code.ResourceExhausted, true, "Too many calls are under way.", "Wait and try again."),
  TOO_LARGE: kind(Code.ResourceExhausted, false, "The message is larger than the server takes.", "Send large contents as a plain body."),
  // Time
  DEADLINE_EXCEEDED: kind(Code.DeadlineExceeded, true, "The time for the call is over.", "Allow more time; what was started may go on."),
  SLOW_READER: kind(Code.Aborted, true, "The reader took nothing for 30 s and was cut.", "Attach again with the offset reached."),
  CANCELLED: kind(Code.Canceled, false, "The caller gave the call up.", "Nothing to do."),
  // Ours
  UNAVAILABLE: kind(Code.Unavailable, true, "A part of the platform cannot be reached.", "Try again; see `dsec status` on the node."),
  EDGE_UNREACHABLE: kind(Code.Unavailable, true, "The node of the sandbox does not answer.", "Try again; its sandboxes go on meanwhile."),
  HOSTD_UNAVAILABLE: kind(Code.Unavailable, true, "The node's hostd does not answer.", "Try again; it is started again within a second."),
  DATABASE_UNAVAILABLE: kind(Code.Unavailable, true, "The database cannot be reached.", "Try again; known keys go on working for ten minutes."),
  AETHER_PROTOCOL: kind(Code.DataLoss, false, "The sandbox's supervisor sent something that is not allowed; the sandbox was ended.", "Drop the sample and start again in a new sandbox."),
  WRONG_SANDBOX: kind(Code.Internal, false, "A supervisor speaks for another sandbox.", "Report this with the request ID."),
  VERSION_UNSUPPORTED: kind(Code.FailedPrecondition, false, "The two programs share no version of the protocol.", "Upgrade the older one."),
  NOT_SUPPORTED: kind(Code.Unimplemented, false, "This node or version cannot do that.", "See the message, and the page on limits."),
  LAUNCH_FAILED: kind(Code.Internal, true, "The node could not start the sandbox.", "Try again; the message has the step that failed."),
  // The platform on a machine
  NOT_ROOT: kind(Code.PermissionDenied, false, "Only root can do this on a node.", "Run it as root, for example with sudo."),
  NODE_UNFIT: kind(Code.FailedPrecondition, false, "The machine lacks something that a node needs.", "See `dsec doctor`."),
  NOT_UP: kind(Code.FailedPrecondition, false, "No platform runs on this data directory.", "Start it: `dsec up --detach`."),
  DATA_DIR_IN_USE: kind(Code.FailedPrecondition, false, "Another platform uses the data directory or the run directory.", "End it with `dsec down`, or give --data-dir and --port of your own."),
  DATA_DIR_NEWER: kind(Code.FailedPrecondition, false, "The data directory was written by a newer program.", "Use that newer version, or another --data-dir."),
  PORT_IN_USE: kind(Code.FailedPrecondition, false, "Another process listens on the port.", "End the process that the message names, or give another --port."),
  START_FAILED: kind(Code.Internal, false, "A server of the platform did not start.", "See the log that the message names, and `dsec doctor`."),
  INTERNAL: kind(Code.Internal, false, "A fault of the platform.", "Report this with the request ID."),
} as const satisfies Record<string, ErrorKind>;

export type ErrorReason = keyof typeof errorTable;
