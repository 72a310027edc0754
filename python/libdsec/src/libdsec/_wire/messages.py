"""Messages of proto/dsec/v1 as the client sends and reads them."""

# Made by `node packages/api/src/python-gen.ts`; do not edit.

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as default

from .codec import Field, Message, Method, define

SANDBOX_STATE: dict[int, str] = {
    0: "",
    1: "CREATING",
    2: "RUNNING",
    3: "PAUSING",
    4: "PAUSED",
    5: "RESUMING",
    6: "STOPPING",
    7: "STOPPED",
    8: "LOST",
}

END_REASON: dict[int, str] = {
    0: "",
    1: "STOPPED",
    2: "TTL",
    3: "IDLE",
    4: "LEASE",
    5: "OOM",
    6: "LOST",
    7: "NODE_REBOOT",
}

LIMIT_HIT: dict[int, str] = {
    0: "",
    1: "MEMORY",
    2: "PIDS",
    3: "DISK",
}

COMMAND_STATE: dict[int, str] = {
    0: "",
    1: "RUNNING",
    2: "ENDED",
}

OUTPUT_STREAM: dict[int, str] = {
    0: "",
    1: "STDOUT",
    2: "STDERR",
}

FILE_TYPE: dict[int, str] = {
    0: "",
    1: "FILE",
    2: "DIRECTORY",
    3: "SYMLINK",
    4: "OTHER",
}

FILE_EVENT_TYPE: dict[int, str] = {
    0: "",
    1: "READY",
    2: "CREATED",
    3: "MODIFIED",
    4: "REMOVED",
    5: "MOVED_FROM",
    6: "MOVED_TO",
    7: "ATTRIBUTES",
    8: "OVERFLOW",
}

LAYER_KIND: dict[int, str] = {
    0: "",
    1: "BASE",
    2: "WORKSPACE",
    3: "TOOLKIT",
}

ROLE: dict[int, str] = {
    0: "",
    1: "VIEWER",
    2: "DEVELOPER",
    3: "BUILDER",
    4: "ADMIN",
}


@dataclass(slots=True)
class CreateSandboxRequest(Message):
    create_key: str = ""
    deadline_unix_ms: int = 0
    retry: bool = False
    project: str = ""
    labels: dict[str, str] = default(default_factory=dict)
    job: str = ""
    ttl_ms: int = 0
    idle_ms: int = 0
    strict: bool = False
    container: ContainerArgs | None = None


@dataclass(slots=True)
class ContainerArgs(Message):
    image: str = ""
    workspace: str = ""
    toolkits: list[str] = default(default_factory=list)
    memory_limit_mb: int = 0
    disk_limit_mb: int = 0
    pids_limit: int = 0
    cpu_cores_limit: float = 0.0
    memory_request_mb: int = 0
    cpu_cores_request: float = 0.0
    env: dict[str, str] = default(default_factory=dict)
    secret_env: dict[str, str] = default(default_factory=dict)
    init_user: str = ""
    working_dir: str = ""
    hostname: str = ""
    network_rules: NetworkRules | None = None
    runtime: str = ""
    nested_user_namespaces: bool = False
    no_new_privs: bool = False
    start_command: StartCommand | None = None


@dataclass(slots=True)
class NetworkRules(Message):
    allow: dict[str, bool] = default(default_factory=dict)


@dataclass(slots=True)
class StartCommand(Message):
    argv: list[bytes] = default(default_factory=list)
    shell: str = ""
    ready_probe: str = ""


@dataclass(slots=True)
class CreateSandboxResponse(Message):
    sandbox: Sandbox | None = None


@dataclass(slots=True)
class Sandbox(Message):
    sandbox_id: str = ""
    state: int = 0
    project: str = ""
    edge: str = ""
    backend: str = ""
    labels: dict[str, str] = default(default_factory=dict)
    job: str = ""
    created_at_ms: int = 0
    ready_at_ms: int = 0
    expires_at_ms: int = 0
    idle_expires_at_ms: int = 0
    ended_at_ms: int = 0
    end_reason: int = 0
    layers: list[LayerUse] = default(default_factory=list)
    notices: list[Notice] = default(default_factory=list)
    memory_limit_mb: int = 0
    disk_limit_mb: int = 0
    pids_limit: int = 0
    cpu_cores_limit: float = 0.0
    memory_request_mb: int = 0
    cpu_cores_request: float = 0.0
    network_rules: NetworkRules | None = None
    network_version: int = 0
    env_names: list[str] = default(default_factory=list)
    init_user: str = ""
    working_dir: str = ""
    created_by: str = ""
    moved_to: str = ""
    keep_until_ms: int = 0


@dataclass(slots=True)
class LayerUse(Message):
    kind: str = ""
    digest: str = ""
    name: str = ""


@dataclass(slots=True)
class Notice(Message):
    reason: str = ""
    field: str = ""
    message: str = ""


@dataclass(slots=True)
class GetSandboxRequest(Message):
    sandbox_id: str = ""


@dataclass(slots=True)
class GetSandboxResponse(Message):
    sandbox: Sandbox | None = None


@dataclass(slots=True)
class ListSandboxesRequest(Message):
    project: str = ""
    labels: dict[str, str] = default(default_factory=dict)
    job: str = ""
    states: list[int] = default(default_factory=list)
    page_size: int = 0
    page_token: str = ""
    recursive: bool = False


@dataclass(slots=True)
class ListSandboxesResponse(Message):
    sandboxes: list[Sandbox] = default(default_factory=list)
    next_page_token: str = ""
    unreachable_edges: list[str] = default(default_factory=list)


@dataclass(slots=True)
class StopSandboxRequest(Message):
    sandbox_id: str = ""
    keep_ms: int = 0


@dataclass(slots=True)
class StopSandboxResponse(Message):
    sandbox: Sandbox | None = None


@dataclass(slots=True)
class DeleteSandboxRequest(Message):
    sandbox_id: str = ""


@dataclass(slots=True)
class DeleteSandboxResponse(Message):
    pass


@dataclass(slots=True)
class ExtendSandboxRequest(Message):
    sandbox_id: str = ""
    by_ms: int = 0


@dataclass(slots=True)
class ExtendSandboxResponse(Message):
    expires_at_ms: int = 0


@dataclass(slots=True)
class ListEventsRequest(Message):
    sandbox_id: str = ""


@dataclass(slots=True)
class ListEventsResponse(Message):
    events: list[SandboxEvent] = default(default_factory=list)


@dataclass(slots=True)
class SandboxEvent(Message):
    at_ms: int = 0
    type: str = ""
    end_reason: int = 0
    message: str = ""


@dataclass(slots=True)
class GetUsageRequest(Message):
    sandbox_id: str = ""


@dataclass(slots=True)
class GetUsageResponse(Message):
    usage: Usage | None = None


@dataclass(slots=True)
class Usage(Message):
    cpu_seconds: float = 0.0
    memory_bytes: int = 0
    peak_memory_bytes: int = 0
    disk_bytes: int = 0
    processes: int = 0
    oom_kills: int = 0
    pids_limit_hits: int = 0
    disk_full: bool = False


@dataclass(slots=True)
class UpdateNetworkRequest(Message):
    sandbox_id: str = ""
    rules: NetworkRules | None = None
    version: int = 0


@dataclass(slots=True)
class UpdateNetworkResponse(Message):
    version: int = 0
    notices: list[Notice] = default(default_factory=list)


@dataclass(slots=True)
class ExecRequest(Message):
    sandbox_id: str = ""
    command_id: str = ""
    spec: CommandSpec | None = None


@dataclass(slots=True)
class CommandSpec(Message):
    argv: ArgumentVector | None = None
    shell: str | None = None
    cwd: str = ""
    env: dict[str, str] = default(default_factory=dict)
    secret_env: dict[str, str] = default(default_factory=dict)
    user: str = ""
    stdin: bytes = b""
    stdin_open: bool = False
    timeout_ms: int = 0
    pty: PtySize | None = None
    session_id: str = ""
    output_cap_bytes: int = 0


@dataclass(slots=True)
class ArgumentVector(Message):
    args: list[bytes] = default(default_factory=list)


@dataclass(slots=True)
class PtySize(Message):
    rows: int = 0
    cols: int = 0


@dataclass(slots=True)
class ExecResponse(Message):
    result: CommandResult | None = None


@dataclass(slots=True)
class CommandResult(Message):
    command_id: str = ""
    outcome: CommandOutcome | None = None
    stdout: CollectedOutput | None = None
    stderr: CollectedOutput | None = None


@dataclass(slots=True)
class CommandOutcome(Message):
    exit_code: int | None = None
    signal: str = ""
    timed_out: bool = False
    oom_killed: bool = False
    limit_hit: list[int] = default(default_factory=list)
    duration_ms: float = 0.0
    peak_memory_bytes: int | None = None
    cpu_time_ms: float | None = None
    session_restarted: bool = False
    stdout_bytes: int = 0
    stderr_bytes: int = 0


@dataclass(slots=True)
class CollectedOutput(Message):
    data: bytes = b""
    dropped_bytes: int = 0
    gap_at: int = 0


@dataclass(slots=True)
class StartRequest(Message):
    sandbox_id: str = ""
    command_id: str = ""
    spec: CommandSpec | None = None


@dataclass(slots=True)
class StartResponse(Message):
    command: CommandInfo | None = None


@dataclass(slots=True)
class CommandInfo(Message):
    command_id: str = ""
    state: int = 0
    started_at_ms: int = 0
    ended_at_ms: int = 0
    outcome: CommandOutcome | None = None
    argv: list[bytes] = default(default_factory=list)
    shell: str = ""
    cwd: str = ""
    user: str = ""
    env_names: list[str] = default(default_factory=list)
    session_id: str = ""
    pty: bool = False


@dataclass(slots=True)
class StreamRequest(Message):
    sandbox_id: str = ""
    command_id: str = ""
    spec: CommandSpec | None = None
    stdout_offset: int = 0
    stderr_offset: int = 0


@dataclass(slots=True)
class StreamResponse(Message):
    started: CommandInfo | None = None
    output: OutputChunk | None = None
    ended: CommandOutcome | None = None


@dataclass(slots=True)
class OutputChunk(Message):
    stream: int = 0
    offset: int = 0
    dropped_bytes: int = 0
    data: bytes = b""


@dataclass(slots=True)
class WaitRequest(Message):
    sandbox_id: str = ""
    command_id: str = ""
    wait_ms: int = 0


@dataclass(slots=True)
class WaitResponse(Message):
    result: CommandResult | None = None


@dataclass(slots=True)
class GetCommandRequest(Message):
    sandbox_id: str = ""
    command_id: str = ""


@dataclass(slots=True)
class GetCommandResponse(Message):
    command: CommandInfo | None = None


@dataclass(slots=True)
class ListCommandsRequest(Message):
    sandbox_id: str = ""
    page_size: int = 0
    page_token: str = ""
    running_only: bool = False


@dataclass(slots=True)
class ListCommandsResponse(Message):
    commands: list[CommandInfo] = default(default_factory=list)
    next_page_token: str = ""


@dataclass(slots=True)
class SignalRequest(Message):
    sandbox_id: str = ""
    command_id: str = ""
    signal: str = ""
    whole_tree: bool = False


@dataclass(slots=True)
class SignalResponse(Message):
    pass


@dataclass(slots=True)
class WriteInputRequest(Message):
    sandbox_id: str = ""
    command_id: str = ""
    offset: int = 0
    data: bytes = b""
    end_of_file: bool = False


@dataclass(slots=True)
class WriteInputResponse(Message):
    accepted_bytes: int = 0


@dataclass(slots=True)
class ResizePtyRequest(Message):
    sandbox_id: str = ""
    command_id: str = ""
    size: PtySize | None = None


@dataclass(slots=True)
class ResizePtyResponse(Message):
    pass


@dataclass(slots=True)
class OpenSessionRequest(Message):
    sandbox_id: str = ""
    session_id: str = ""
    cwd: str = ""
    env: dict[str, str] = default(default_factory=dict)
    secret_env: dict[str, str] = default(default_factory=dict)
    user: str = ""


@dataclass(slots=True)
class OpenSessionResponse(Message):
    session: SessionInfo | None = None


@dataclass(slots=True)
class SessionInfo(Message):
    session_id: str = ""
    user: str = ""
    opened_at_ms: int = 0
    command_id: str = ""
    restarts: int = 0


@dataclass(slots=True)
class CloseSessionRequest(Message):
    sandbox_id: str = ""
    session_id: str = ""


@dataclass(slots=True)
class CloseSessionResponse(Message):
    pass


@dataclass(slots=True)
class ListSessionsRequest(Message):
    sandbox_id: str = ""


@dataclass(slots=True)
class ListSessionsResponse(Message):
    sessions: list[SessionInfo] = default(default_factory=list)


@dataclass(slots=True)
class StatRequest(Message):
    sandbox_id: str = ""
    path: bytes = b""
    user: str = ""
    follow: bool = False


@dataclass(slots=True)
class StatResponse(Message):
    file: FileInfo | None = None


@dataclass(slots=True)
class FileInfo(Message):
    name: bytes = b""
    type: int = 0
    size_bytes: int = 0
    mode: int = 0
    uid: int = 0
    gid: int = 0
    modified_at_ms: int = 0
    link_target: bytes = b""


@dataclass(slots=True)
class ListDirectoryRequest(Message):
    sandbox_id: str = ""
    path: bytes = b""
    user: str = ""
    page_size: int = 0
    page_token: str = ""


@dataclass(slots=True)
class ListDirectoryResponse(Message):
    entries: list[FileInfo] = default(default_factory=list)
    next_page_token: str = ""


@dataclass(slots=True)
class MakeDirectoryRequest(Message):
    sandbox_id: str = ""
    path: bytes = b""
    user: str = ""
    parents: bool = False
    mode: int = 0


@dataclass(slots=True)
class MakeDirectoryResponse(Message):
    pass


@dataclass(slots=True)
class MoveRequest(Message):
    sandbox_id: str = ""
    from_path: bytes = b""
    to_path: bytes = b""
    user: str = ""
    overwrite: bool = False


@dataclass(slots=True)
class MoveResponse(Message):
    pass


@dataclass(slots=True)
class RemoveRequest(Message):
    sandbox_id: str = ""
    path: bytes = b""
    user: str = ""
    recursive: bool = False
    missing_ok: bool = False


@dataclass(slots=True)
class RemoveResponse(Message):
    pass


@dataclass(slots=True)
class WatchRequest(Message):
    sandbox_id: str = ""
    path: bytes = b""
    user: str = ""
    recursive: bool = False


@dataclass(slots=True)
class WatchResponse(Message):
    events: list[FileEvent] = default(default_factory=list)


@dataclass(slots=True)
class FileEvent(Message):
    type: int = 0
    path: bytes = b""


@dataclass(slots=True)
class ListLayersRequest(Message):
    project: str = ""
    kinds: list[int] = default(default_factory=list)
    page_size: int = 0
    page_token: str = ""
    name_prefix: str = ""


@dataclass(slots=True)
class ListLayersResponse(Message):
    layers: list[LayerVersion] = default(default_factory=list)
    next_page_token: str = ""


@dataclass(slots=True)
class LayerVersion(Message):
    name: str = ""
    version: int = 0
    kind: int = 0
    digests: list[str] = default(default_factory=list)
    metadata_bytes: int = 0
    data_bytes: int = 0
    entries: int = 0
    created_at_ms: int = 0
    config: ImageConfig | None = None
    built_from: str = ""


@dataclass(slots=True)
class ImageConfig(Message):
    env: list[str] = default(default_factory=list)
    user: str = ""
    working_dir: str = ""
    entrypoint: list[str] = default(default_factory=list)
    cmd: list[str] = default(default_factory=list)
    labels: dict[str, str] = default(default_factory=dict)


@dataclass(slots=True)
class GetLayerRequest(Message):
    name: str = ""


@dataclass(slots=True)
class GetLayerResponse(Message):
    layer: LayerVersion | None = None


@dataclass(slots=True)
class DeleteLayerRequest(Message):
    name: str = ""


@dataclass(slots=True)
class DeleteLayerResponse(Message):
    pass


@dataclass(slots=True)
class WhoAmIRequest(Message):
    pass


@dataclass(slots=True)
class WhoAmIResponse(Message):
    key: Key | None = None


@dataclass(slots=True)
class Key(Message):
    key_id: str = ""
    project: str = ""
    role: int = 0
    name: str = ""
    created_at_ms: int = 0
    expires_at_ms: int = 0
    revoked_at_ms: int = 0


@dataclass(slots=True)
class CreateProjectRequest(Message):
    path: str = ""
    quota: Quota | None = None


@dataclass(slots=True)
class Quota(Message):
    sandboxes: int | None = None
    cpu_cores: float | None = None
    memory_mb: int | None = None


@dataclass(slots=True)
class CreateProjectResponse(Message):
    project: Project | None = None


@dataclass(slots=True)
class Project(Message):
    path: str = ""
    quota: Quota | None = None
    used: Quota | None = None
    created_at_ms: int = 0


@dataclass(slots=True)
class ListProjectsRequest(Message):
    path: str = ""


@dataclass(slots=True)
class ListProjectsResponse(Message):
    projects: list[Project] = default(default_factory=list)


@dataclass(slots=True)
class DeleteProjectRequest(Message):
    path: str = ""


@dataclass(slots=True)
class DeleteProjectResponse(Message):
    pass


@dataclass(slots=True)
class SetQuotaRequest(Message):
    path: str = ""
    quota: Quota | None = None


@dataclass(slots=True)
class SetQuotaResponse(Message):
    project: Project | None = None


@dataclass(slots=True)
class CreateKeyRequest(Message):
    project: str = ""
    role: int = 0
    name: str = ""
    ttl_ms: int = 0


@dataclass(slots=True)
class CreateKeyResponse(Message):
    key: Key | None = None
    secret: str = ""


@dataclass(slots=True)
class ListKeysRequest(Message):
    project: str = ""


@dataclass(slots=True)
class ListKeysResponse(Message):
    keys: list[Key] = default(default_factory=list)


@dataclass(slots=True)
class RevokeKeyRequest(Message):
    key_id: str = ""


@dataclass(slots=True)
class RevokeKeyResponse(Message):
    pass


@dataclass(slots=True)
class ListNodesRequest(Message):
    pass


@dataclass(slots=True)
class ListNodesResponse(Message):
    nodes: list[NodeStatus] = default(default_factory=list)


@dataclass(slots=True)
class NodeStatus(Message):
    edge: str = ""
    healthy: bool = False
    accepting: bool = False
    not_accepting_reason: str = ""
    cpus: float = 0.0
    memory_mb: int = 0
    cpu_cores_capacity: float = 0.0
    memory_mb_capacity: int = 0
    max_sandboxes: int = 0
    cpu_cores_requested: float = 0.0
    memory_mb_requested: int = 0
    sandboxes: int = 0
    cpu_busy: float = 0.0
    memory_mb_available: int = 0
    projects: list[ProjectUse] = default(default_factory=list)
    backends: list[str] = default(default_factory=list)
    at_ms: int = 0
    generation: int = 0
    started_at_ms: int = 0


@dataclass(slots=True)
class ProjectUse(Message):
    project: str = ""
    sandboxes: int = 0
    cpu_cores: float = 0.0
    memory_mb: int = 0


@dataclass(slots=True)
class ErrorInfo(Message):
    reason: str = ""
    message: str = ""
    retryable: bool = False
    outcome: str = ""
    retry_after_ms: int = 0
    metadata: dict[str, str] = default(default_factory=dict)


@dataclass(slots=True)
class ImportLayerResponse(Message):
    layer: LayerVersion | None = None
    existed: bool = False


define(
    CreateSandboxRequest,
    Field(1, "create_key", "createKey", "single", "string"),
    Field(2, "deadline_unix_ms", "deadlineUnixMs", "single", "uint"),
    Field(3, "retry", "retry", "single", "bool"),
    Field(4, "project", "project", "single", "string"),
    Field(5, "labels", "labels", "map", "string"),
    Field(6, "job", "job", "single", "string"),
    Field(7, "ttl_ms", "ttlMs", "single", "uint"),
    Field(8, "idle_ms", "idleMs", "single", "uint"),
    Field(9, "strict", "strict", "single", "bool"),
    Field(16, "container", "container", "optional", "message", ContainerArgs),
)
define(
    ContainerArgs,
    Field(1, "image", "image", "single", "string"),
    Field(2, "workspace", "workspace", "single", "string"),
    Field(3, "toolkits", "toolkits", "list", "string"),
    Field(4, "memory_limit_mb", "memoryLimitMb", "single", "uint"),
    Field(5, "disk_limit_mb", "diskLimitMb", "single", "uint"),
    Field(6, "pids_limit", "pidsLimit", "single", "uint"),
    Field(7, "cpu_cores_limit", "cpuCoresLimit", "single", "double"),
    Field(8, "memory_request_mb", "memoryRequestMb", "single", "uint"),
    Field(9, "cpu_cores_request", "cpuCoresRequest", "single", "double"),
    Field(10, "env", "env", "map", "string"),
    Field(11, "secret_env", "secretEnv", "map", "string"),
    Field(12, "init_user", "initUser", "single", "string"),
    Field(13, "working_dir", "workingDir", "single", "string"),
    Field(14, "hostname", "hostname", "single", "string"),
    Field(15, "network_rules", "networkRules", "single", "message", NetworkRules),
    Field(16, "runtime", "runtime", "single", "string"),
    Field(17, "nested_user_namespaces", "nestedUserNamespaces", "single", "bool"),
    Field(18, "no_new_privs", "noNewPrivs", "single", "bool"),
    Field(19, "start_command", "startCommand", "single", "message", StartCommand),
)
define(
    NetworkRules,
    Field(1, "allow", "allow", "map", "bool"),
)
define(
    StartCommand,
    Field(1, "argv", "argv", "list", "bytes"),
    Field(2, "shell", "shell", "single", "string"),
    Field(3, "ready_probe", "readyProbe", "single", "string"),
)
define(
    CreateSandboxResponse,
    Field(1, "sandbox", "sandbox", "single", "message", Sandbox),
)
define(
    Sandbox,
    Field(1, "sandbox_id", "sandboxId", "single", "string"),
    Field(2, "state", "state", "single", "enum", names=SANDBOX_STATE, prefix="SANDBOX_STATE_"),
    Field(3, "project", "project", "single", "string"),
    Field(4, "edge", "edge", "single", "string"),
    Field(5, "backend", "backend", "single", "string"),
    Field(6, "labels", "labels", "map", "string"),
    Field(7, "job", "job", "single", "string"),
    Field(8, "created_at_ms", "createdAtMs", "single", "uint"),
    Field(9, "ready_at_ms", "readyAtMs", "single", "uint"),
    Field(10, "expires_at_ms", "expiresAtMs", "single", "uint"),
    Field(11, "idle_expires_at_ms", "idleExpiresAtMs", "single", "uint"),
    Field(12, "ended_at_ms", "endedAtMs", "single", "uint"),
    Field(13, "end_reason", "endReason", "single", "enum", names=END_REASON, prefix="END_REASON_"),
    Field(14, "layers", "layers", "list", "message", LayerUse),
    Field(15, "notices", "notices", "list", "message", Notice),
    Field(16, "memory_limit_mb", "memoryLimitMb", "single", "uint"),
    Field(17, "disk_limit_mb", "diskLimitMb", "single", "uint"),
    Field(18, "pids_limit", "pidsLimit", "single", "uint"),
    Field(19, "cpu_cores_limit", "cpuCoresLimit", "single", "double"),
    Field(20, "memory_request_mb", "memoryRequestMb", "single", "uint"),
    Field(21, "cpu_cores_request", "cpuCoresRequest", "single", "double"),
    Field(22, "network_rules", "networkRules", "single", "message", NetworkRules),
    Field(23, "network_version", "networkVersion", "single", "uint"),
    Field(24, "env_names", "envNames", "list", "string"),
    Field(25, "init_user", "initUser", "single", "string"),
    Field(26, "working_dir", "workingDir", "single", "string"),
    Field(27, "created_by", "createdBy", "single", "string"),
    Field(28, "moved_to", "movedTo", "single", "string"),
    Field(29, "keep_until_ms", "keepUntilMs", "single", "uint"),
)
define(
    LayerUse,
    Field(1, "kind", "kind", "single", "string"),
    Field(2, "digest", "digest", "single", "string"),
    Field(3, "name", "name", "single", "string"),
)
define(
    Notice,
    Field(1, "reason", "reason", "single", "string"),
    Field(2, "field", "field", "single", "string"),
    Field(3, "message", "message", "single", "string"),
)
define(
    GetSandboxRequest,
    Field(1, "sandbox_id", "sandboxId", "single", "string"),
)
define(
    GetSandboxResponse,
    Field(1, "sandbox", "sandbox", "single", "message", Sandbox),
)
define(
    ListSandboxesRequest,
    Field(1, "project", "project", "single", "string"),
    Field(2, "labels", "labels", "map", "string"),
    Field(3, "job", "job", "single", "string"),
    Field(4, "states", "states", "list", "enum", names=SANDBOX_STATE, prefix="SANDBOX_STATE_"),
    Field(5, "page_size", "pageSize", "single", "uint"),
    Field(6, "page_token", "pageToken", "single", "string"),
    Field(7, "recursive", "recursive", "single", "bool"),
)
define(
    ListSandboxesResponse,
    Field(1, "sandboxes", "sandboxes", "list", "message", Sandbox),
    Field(2, "next_page_token", "nextPageToken", "single", "string"),
    Field(3, "unreachable_edges", "unreachableEdges", "list", "string"),
)
define(
    StopSandboxRequest,
    Field(1, "sandbox_id", "sandboxId", "single", "string"),
    Field(2, "keep_ms", "keepMs", "single", "uint"),
)
define(
    StopSandboxResponse,
    Field(1, "sandbox", "sandbox", "single", "message", Sandbox),
)
define(
    DeleteSandboxRequest,
    Field(1, "sandbox_id", "sandboxId", "single", "string"),
)
define(DeleteSandboxResponse)
define(
    ExtendSandboxRequest,
    Field(1, "sandbox_id", "sandboxId", "single", "string"),
    Field(2, "by_ms", "byMs", "single", "uint"),
)
define(
    ExtendSandboxResponse,
    Field(1, "expires_at_ms", "expiresAtMs", "single", "uint"),
)
define(
    ListEventsRequest,
    Field(1, "sandbox_id", "sandboxId", "single", "string"),
)
define(
    ListEventsResponse,
    Field(1, "events", "events", "list", "message", SandboxEvent),
)
define(
    SandboxEvent,
    Field(1, "at_ms", "atMs", "single", "uint"),
    Field(2, "type", "type", "single", "string"),
    Field(3, "end_reason", "endReason", "single", "enum", names=END_REASON, prefix="END_REASON_"),
    Field(4, "message", "message", "single", "string"),
)
define(
    GetUsageRequest,
    Field(1, "sandbox_id", "sandboxId", "single", "string"),
)
define(
    GetUsageResponse,
    Field(1, "usage", "usage", "single", "message", Usage),
)
define(
    Usage,
    Field(1, "cpu_seconds", "cpuSeconds", "single", "double"),
    Field(2, "memory_bytes", "memoryBytes", "single", "uint"),
    Field(3, "peak_memory_bytes", "peakMemoryBytes", "single", "uint"),
    Field(4, "disk_bytes", "diskBytes", "single", "uint"),
    Field(5, "processes", "processes", "single", "uint"),
    Field(6, "oom_kills", "oomKills", "single", "uint"),
    Field(7, "pids_limit_hits", "pidsLimitHits", "single", "uint"),
    Field(8, "disk_full", "diskFull", "single", "bool"),
)
define(
    UpdateNetworkRequest,
    Field(1, "sandbox_id", "sandboxId", "single", "string"),
    Field(2, "rules", "rules", "single", "message", NetworkRules),
    Field(3, "version", "version", "single", "uint"),
)
define(
    UpdateNetworkResponse,
    Field(1, "version", "version", "single", "uint"),
    Field(2, "notices", "notices", "list", "message", Notice),
)
define(
    ExecRequest,
    Field(1, "sandbox_id", "sandboxId", "single", "string"),
    Field(2, "command_id", "commandId", "single", "string"),
    Field(3, "spec", "spec", "single", "message", CommandSpec),
)
define(
    CommandSpec,
    Field(1, "argv", "argv", "optional", "message", ArgumentVector),
    Field(2, "shell", "shell", "optional", "string"),
    Field(3, "cwd", "cwd", "single", "string"),
    Field(4, "env", "env", "map", "string"),
    Field(5, "secret_env", "secretEnv", "map", "string"),
    Field(6, "user", "user", "single", "string"),
    Field(7, "stdin", "stdin", "single", "bytes"),
    Field(8, "stdin_open", "stdinOpen", "single", "bool"),
    Field(9, "timeout_ms", "timeoutMs", "single", "uint"),
    Field(10, "pty", "pty", "single", "message", PtySize),
    Field(11, "session_id", "sessionId", "single", "string"),
    Field(12, "output_cap_bytes", "outputCapBytes", "single", "uint"),
)
define(
    ArgumentVector,
    Field(1, "args", "args", "list", "bytes"),
)
define(
    PtySize,
    Field(1, "rows", "rows", "single", "uint"),
    Field(2, "cols", "cols", "single", "uint"),
)
define(
    ExecResponse,
    Field(1, "result", "result", "single", "message", CommandResult),
)
define(
    CommandResult,
    Field(1, "command_id", "commandId", "single", "string"),
    Field(2, "outcome", "outcome", "single", "message", CommandOutcome),
    Field(3, "stdout", "stdout", "single", "message", CollectedOutput),
    Field(4, "stderr", "stderr", "single", "message", CollectedOutput),
)
define(
    CommandOutcome,
    Field(1, "exit_code", "exitCode", "optional", "int"),
    Field(2, "signal", "signal", "single", "string"),
    Field(3, "timed_out", "timedOut", "single", "bool"),
    Field(4, "oom_killed", "oomKilled", "single", "bool"),
    Field(5, "limit_hit", "limitHit", "list", "enum", names=LIMIT_HIT, prefix="LIMIT_HIT_"),
    Field(6, "duration_ms", "durationMs", "single", "double"),
    Field(7, "peak_memory_bytes", "peakMemoryBytes", "optional", "uint"),
    Field(8, "cpu_time_ms", "cpuTimeMs", "optional", "double"),
    Field(9, "session_restarted", "sessionRestarted", "single", "bool"),
    Field(10, "stdout_bytes", "stdoutBytes", "single", "uint"),
    Field(11, "stderr_bytes", "stderrBytes", "single", "uint"),
)
define(
    CollectedOutput,
    Field(1, "data", "data", "single", "bytes"),
    Field(2, "dropped_bytes", "droppedBytes", "single", "uint"),
    Field(3, "gap_at", "gapAt", "single", "uint"),
)
define(
    StartRequest,
    Field(1, "sandbox_id", "sandboxId", "single", "string"),
    Field(2, "command_id", "commandId", "single", "string"),
    Field(3, "spec", "spec", "single", "message", CommandSpec),
)
define(
    StartResponse,
    Field(1, "command", "command", "single", "message", CommandInfo),
)
define(
    CommandInfo,
    Field(1, "command_id", "commandId", "single", "string"),
    Field(2, "state", "state", "single", "enum", names=COMMAND_STATE, prefix="COMMAND_STATE_"),
    Field(3, "started_at_ms", "startedAtMs", "single", "uint"),
    Field(4, "ended_at_ms", "endedAtMs", "single", "uint"),
    Field(5, "outcome", "outcome", "single", "message", CommandOutcome),
    Field(6, "argv", "argv", "list", "bytes"),
    Field(7, "shell", "shell", "single", "string"),
    Field(8, "cwd", "cwd", "single", "string"),
    Field(9, "user", "user", "single", "string"),
    Field(10, "env_names", "envNames", "list", "string"),
    Field(11, "session_id", "sessionId", "single", "string"),
    Field(12, "pty", "pty", "single", "bool"),
)
define(
    StreamRequest,
    Field(1, "sandbox_id", "sandboxId", "single", "string"),
    Field(2, "command_id", "commandId", "single", "string"),
    Field(3, "spec", "spec", "single", "message", CommandSpec),
    Field(4, "stdout_offset", "stdoutOffset", "single", "uint"),
    Field(5, "stderr_offset", "stderrOffset", "single", "uint"),
)
define(
    StreamResponse,
    Field(1, "started", "started", "optional", "message", CommandInfo),
    Field(2, "output", "output", "optional", "message", OutputChunk),
    Field(3, "ended", "ended", "optional", "message", CommandOutcome),
)
define(
    OutputChunk,
    Field(1, "stream", "stream", "single", "enum", names=OUTPUT_STREAM, prefix="OUTPUT_STREAM_"),
    Field(2, "offset", "offset", "single", "uint"),
    Field(3, "dropped_bytes", "droppedBytes", "single", "uint"),
    Field(4, "data", "data", "single", "bytes"),
)
define(
    WaitRequest,
    Field(1, "sandbox_id", "sandboxId", "single", "string"),
    Field(2, "command_id", "commandId", "single", "string"),
    Field(3, "wait_ms", "waitMs", "single", "uint"),
)
define(
    WaitResponse,
    Field(1, "result", "result", "single", "message", CommandResult),
)
define(
    GetCommandRequest,
    Field(1, "sandbox_id", "sandboxId", "single", "string"),
    Field(2, "command_id", "commandId", "single", "string"),
)
define(
    GetCommandResponse,
    Field(1, "command", "command", "single", "message", CommandInfo),
)
define(
    ListCommandsRequest,
    Field(1, "sandbox_id", "sandboxId", "single", "string"),
    Field(2, "page_size", "pageSize", "single", "uint"),
    Field(3, "page_token", "pageToken", "single", "string"),
    Field(4, "running_only", "runningOnly", "single", "bool"),
)
define(
    ListCommandsResponse,
    Field(1, "commands", "commands", "list", "message", CommandInfo),
    Field(2, "next_page_token", "nextPageToken", "single", "string"),
)
define(
    SignalRequest,
    Field(1, "sandbox_id", "sandboxId", "single", "string"),
    Field(2, "command_id", "commandId", "single", "string"),
    Field(3, "signal", "signal", "single", "string"),
    Field(4, "whole_tree", "wholeTree", "single", "bool"),
)
define(SignalResponse)
define(
    WriteInputRequest,
    Field(1, "sandbox_id", "sandboxId", "single", "string"),
    Field(2, "command_id", "commandId", "single", "string"),
    Field(3, "offset", "offset", "single", "uint"),
    Field(4, "data", "data", "single", "bytes"),
    Field(5, "end_of_file", "endOfFile", "single", "bool"),
)
define(
    WriteInputResponse,
    Field(1, "accepted_bytes", "acceptedBytes", "single", "uint"),
)
define(
    ResizePtyRequest,
    Field(1, "sandbox_id", "sandboxId", "single", "string"),
    Field(2, "command_id", "commandId", "single", "string"),
    Field(3, "size", "size", "single", "message", PtySize),
)
define(ResizePtyResponse)
define(
    OpenSessionRequest,
    Field(1, "sandbox_id", "sandboxId", "single", "string"),
    Field(2, "session_id", "sessionId", "single", "string"),
    Field(3, "cwd", "cwd", "single", "string"),
    Field(4, "env", "env", "map", "string"),
    Field(5, "secret_env", "secretEnv", "map", "string"),
    Field(6, "user", "user", "single", "string"),
)
define(
    OpenSessionResponse,
    Field(1, "session", "session", "single", "message", SessionInfo),
)
define(
    SessionInfo,
    Field(1, "session_id", "sessionId", "single", "string"),
    Field(2, "user", "user", "single", "string"),
    Field(3, "opened_at_ms", "openedAtMs", "single", "uint"),
    Field(4, "command_id", "commandId", "single", "string"),
    Field(5, "restarts", "restarts", "single", "uint"),
)
define(
    CloseSessionRequest,
    Field(1, "sandbox_id", "sandboxId", "single", "string"),
    Field(2, "session_id", "sessionId", "single", "string"),
)
define(CloseSessionResponse)
define(
    ListSessionsRequest,
    Field(1, "sandbox_id", "sandboxId", "single", "string"),
)
define(
    ListSessionsResponse,
    Field(1, "sessions", "sessions", "list", "message", SessionInfo),
)
define(
    StatRequest,
    Field(1, "sandbox_id", "sandboxId", "single", "string"),
    Field(2, "path", "path", "single", "bytes"),
    Field(3, "user", "user", "single", "string"),
    Field(4, "follow", "follow", "single", "bool"),
)
define(
    StatResponse,
    Field(1, "file", "file", "single", "message", FileInfo),
)
define(
    FileInfo,
    Field(1, "name", "name", "single", "bytes"),
    Field(2, "type", "type", "single", "enum", names=FILE_TYPE, prefix="FILE_TYPE_"),
    Field(3, "size_bytes", "sizeBytes", "single", "uint"),
    Field(4, "mode", "mode", "single", "uint"),
    Field(5, "uid", "uid", "single", "uint"),
    Field(6, "gid", "gid", "single", "uint"),
    Field(7, "modified_at_ms", "modifiedAtMs", "single", "int"),
    Field(8, "link_target", "linkTarget", "single", "bytes"),
)
define(
    ListDirectoryRequest,
    Field(1, "sandbox_id", "sandboxId", "single", "string"),
    Field(2, "path", "path", "single", "bytes"),
    Field(3, "user", "user", "single", "string"),
    Field(4, "page_size", "pageSize", "single", "uint"),
    Field(5, "page_token", "pageToken", "single", "string"),
)
define(
    ListDirectoryResponse,
    Field(1, "entries", "entries", "list", "message", FileInfo),
    Field(2, "next_page_token", "nextPageToken", "single", "string"),
)
define(
    MakeDirectoryRequest,
    Field(1, "sandbox_id", "sandboxId", "single", "string"),
    Field(2, "path", "path", "single", "bytes"),
    Field(3, "user", "user", "single", "string"),
    Field(4, "parents", "parents", "single", "bool"),
    Field(5, "mode", "mode", "single", "uint"),
)
define(MakeDirectoryResponse)
define(
    MoveRequest,
    Field(1, "sandbox_id", "sandboxId", "single", "string"),
    Field(2, "from_path", "fromPath", "single", "bytes"),
    Field(3, "to_path", "toPath", "single", "bytes"),
    Field(4, "user", "user", "single", "string"),
    Field(5, "overwrite", "overwrite", "single", "bool"),
)
define(MoveResponse)
define(
    RemoveRequest,
    Field(1, "sandbox_id", "sandboxId", "single", "string"),
    Field(2, "path", "path", "single", "bytes"),
    Field(3, "user", "user", "single", "string"),
    Field(4, "recursive", "recursive", "single", "bool"),
    Field(5, "missing_ok", "missingOk", "single", "bool"),
)
define(RemoveResponse)
define(
    WatchRequest,
    Field(1, "sandbox_id", "sandboxId", "single", "string"),
    Field(2, "path", "path", "single", "bytes"),
    Field(3, "user", "user", "single", "string"),
    Field(4, "recursive", "recursive", "single", "bool"),
)
define(
    WatchResponse,
    Field(1, "events", "events", "list", "message", FileEvent),
)
define(
    FileEvent,
    Field(1, "type", "type", "single", "enum", names=FILE_EVENT_TYPE, prefix="FILE_EVENT_TYPE_"),
    Field(2, "path", "path", "single", "bytes"),
)
define(
    ListLayersRequest,
    Field(1, "project", "project", "single", "string"),
    Field(2, "kinds", "kinds", "list", "enum", names=LAYER_KIND, prefix="LAYER_KIND_"),
    Field(3, "page_size", "pageSize", "single", "uint"),
    Field(4, "page_token", "pageToken", "single", "string"),
    Field(5, "name_prefix", "namePrefix", "single", "string"),
)
define(
    ListLayersResponse,
    Field(1, "layers", "layers", "list", "message", LayerVersion),
    Field(2, "next_page_token", "nextPageToken", "single", "string"),
)
define(
    LayerVersion,
    Field(1, "name", "name", "single", "string"),
    Field(2, "version", "version", "single", "uint"),
    Field(3, "kind", "kind", "single", "enum", names=LAYER_KIND, prefix="LAYER_KIND_"),
    Field(4, "digests", "digests", "list", "string"),
    Field(5, "metadata_bytes", "metadataBytes", "single", "uint"),
    Field(6, "data_bytes", "dataBytes", "single", "uint"),
    Field(7, "entries", "entries", "single", "uint"),
    Field(8, "created_at_ms", "createdAtMs", "single", "uint"),
    Field(9, "config", "config", "single", "message", ImageConfig),
    Field(10, "built_from", "builtFrom", "single", "string"),
)
define(
    ImageConfig,
    Field(1, "env", "env", "list", "string"),
    Field(2, "user", "user", "single", "string"),
    Field(3, "working_dir", "workingDir", "single", "string"),
    Field(4, "entrypoint", "entrypoint", "list", "string"),
    Field(5, "cmd", "cmd", "list", "string"),
    Field(6, "labels", "labels", "map", "string"),
)
define(
    GetLayerRequest,
    Field(1, "name", "name", "single", "string"),
)
define(
    GetLayerResponse,
    Field(1, "layer", "layer", "single", "message", LayerVersion),
)
define(
    DeleteLayerRequest,
    Field(1, "name", "name", "single", "string"),
)
define(DeleteLayerResponse)
define(WhoAmIRequest)
define(
    WhoAmIResponse,
    Field(1, "key", "key", "single", "message", Key),
)
define(
    Key,
    Field(1, "key_id", "keyId", "single", "string"),
    Field(2, "project", "project", "single", "string"),
    Field(3, "role", "role", "single", "enum", names=ROLE, prefix="ROLE_"),
    Field(4, "name", "name", "single", "string"),
    Field(5, "created_at_ms", "createdAtMs", "single", "uint"),
    Field(6, "expires_at_ms", "expiresAtMs", "single", "uint"),
    Field(7, "revoked_at_ms", "revokedAtMs", "single", "uint"),
)
define(
    CreateProjectRequest,
    Field(1, "path", "path", "single", "string"),
    Field(2, "quota", "quota", "single", "message", Quota),
)
define(
    Quota,
    Field(1, "sandboxes", "sandboxes", "optional", "uint"),
    Field(2, "cpu_cores", "cpuCores", "optional", "double"),
    Field(3, "memory_mb", "memoryMb", "optional", "uint"),
)
define(
    CreateProjectResponse,
    Field(1, "project", "project", "single", "message", Project),
)
define(
    Project,
    Field(1, "path", "path", "single", "string"),
    Field(2, "quota", "quota", "single", "message", Quota),
    Field(3, "used", "used", "single", "message", Quota),
    Field(4, "created_at_ms", "createdAtMs", "single", "uint"),
)
define(
    ListProjectsRequest,
    Field(1, "path", "path", "single", "string"),
)
define(
    ListProjectsResponse,
    Field(1, "projects", "projects", "list", "message", Project),
)
define(
    DeleteProjectRequest,
    Field(1, "path", "path", "single", "string"),
)
define(DeleteProjectResponse)
define(
    SetQuotaRequest,
    Field(1, "path", "path", "single", "string"),
    Field(2, "quota", "quota", "single", "message", Quota),
)
define(
    SetQuotaResponse,
    Field(1, "project", "project", "single", "message", Project),
)
define(
    CreateKeyRequest,
    Field(1, "project", "project", "single", "string"),
    Field(2, "role", "role", "single", "enum", names=ROLE, prefix="ROLE_"),
    Field(3, "name", "name", "single", "string"),
    Field(4, "ttl_ms", "ttlMs", "single", "uint"),
)
define(
    CreateKeyResponse,
    Field(1, "key", "key", "single", "message", Key),
    Field(2, "secret", "secret", "single", "string"),
)
define(
    ListKeysRequest,
    Field(1, "project", "project", "single", "string"),
)
define(
    ListKeysResponse,
    Field(1, "keys", "keys", "list", "message", Key),
)
define(
    RevokeKeyRequest,
    Field(1, "key_id", "keyId", "single", "string"),
)
define(RevokeKeyResponse)
define(ListNodesRequest)
define(
    ListNodesResponse,
    Field(1, "nodes", "nodes", "list", "message", NodeStatus),
)
define(
    NodeStatus,
    Field(1, "edge", "edge", "single", "string"),
    Field(2, "healthy", "healthy", "single", "bool"),
    Field(3, "accepting", "accepting", "single", "bool"),
    Field(4, "not_accepting_reason", "notAcceptingReason", "single", "string"),
    Field(5, "cpus", "cpus", "single", "double"),
    Field(6, "memory_mb", "memoryMb", "single", "uint"),
    Field(7, "cpu_cores_capacity", "cpuCoresCapacity", "single", "double"),
    Field(8, "memory_mb_capacity", "memoryMbCapacity", "single", "uint"),
    Field(9, "max_sandboxes", "maxSandboxes", "single", "uint"),
    Field(10, "cpu_cores_requested", "cpuCoresRequested", "single", "double"),
    Field(11, "memory_mb_requested", "memoryMbRequested", "single", "uint"),
    Field(12, "sandboxes", "sandboxes", "single", "uint"),
    Field(13, "cpu_busy", "cpuBusy", "single", "double"),
    Field(14, "memory_mb_available", "memoryMbAvailable", "single", "uint"),
    Field(15, "projects", "projects", "list", "message", ProjectUse),
    Field(16, "backends", "backends", "list", "string"),
    Field(17, "at_ms", "atMs", "single", "uint"),
    Field(18, "generation", "generation", "single", "uint"),
    Field(19, "started_at_ms", "startedAtMs", "single", "uint"),
)
define(
    ProjectUse,
    Field(1, "project", "project", "single", "string"),
    Field(2, "sandboxes", "sandboxes", "single", "uint"),
    Field(3, "cpu_cores", "cpuCores", "single", "double"),
    Field(4, "memory_mb", "memoryMb", "single", "uint"),
)
define(
    ErrorInfo,
    Field(1, "reason", "reason", "single", "string"),
    Field(2, "message", "message", "single", "string"),
    Field(3, "retryable", "retryable", "single", "bool"),
    Field(4, "outcome", "outcome", "single", "string"),
    Field(5, "retry_after_ms", "retryAfterMs", "single", "uint"),
    Field(6, "metadata", "metadata", "map", "string"),
)
define(
    ImportLayerResponse,
    Field(1, "layer", "layer", "single", "message", LayerVersion),
    Field(2, "existed", "existed", "single", "bool"),
)

CREATE_SANDBOX = Method("/dsec.v1.SandboxService/CreateSandbox", CreateSandboxRequest, CreateSandboxResponse)
GET_SANDBOX = Method("/dsec.v1.SandboxService/GetSandbox", GetSandboxRequest, GetSandboxResponse)
LIST_SANDBOXES = Method("/dsec.v1.SandboxService/ListSandboxes", ListSandboxesRequest, ListSandboxesResponse)
STOP_SANDBOX = Method("/dsec.v1.SandboxService/StopSandbox", StopSandboxRequest, StopSandboxResponse)
DELETE_SANDBOX = Method("/dsec.v1.SandboxService/DeleteSandbox", DeleteSandboxRequest, DeleteSandboxResponse)
EXTEND_SANDBOX = Method("/dsec.v1.SandboxService/ExtendSandbox", ExtendSandboxRequest, ExtendSandboxResponse)
LIST_EVENTS = Method("/dsec.v1.SandboxService/ListEvents", ListEventsRequest, ListEventsResponse)
GET_USAGE = Method("/dsec.v1.SandboxService/GetUsage", GetUsageRequest, GetUsageResponse)
UPDATE_NETWORK = Method("/dsec.v1.SandboxService/UpdateNetwork", UpdateNetworkRequest, UpdateNetworkResponse)
EXEC = Method("/dsec.v1.CommandService/Exec", ExecRequest, ExecResponse)
START = Method("/dsec.v1.CommandService/Start", StartRequest, StartResponse)
STREAM = Method("/dsec.v1.CommandService/Stream", StreamRequest, StreamResponse)
WAIT = Method("/dsec.v1.CommandService/Wait", WaitRequest, WaitResponse)
GET_COMMAND = Method("/dsec.v1.CommandService/GetCommand", GetCommandRequest, GetCommandResponse)
LIST_COMMANDS = Method("/dsec.v1.CommandService/ListCommands", ListCommandsRequest, ListCommandsResponse)
SIGNAL = Method("/dsec.v1.CommandService/Signal", SignalRequest, SignalResponse)
WRITE_INPUT = Method("/dsec.v1.CommandService/WriteInput", WriteInputRequest, WriteInputResponse)
RESIZE_PTY = Method("/dsec.v1.CommandService/ResizePty", ResizePtyRequest, ResizePtyResponse)
OPEN_SESSION = Method("/dsec.v1.SessionService/OpenSession", OpenSessionRequest, OpenSessionResponse)
CLOSE_SESSION = Method("/dsec.v1.SessionService/CloseSession", CloseSessionRequest, CloseSessionResponse)
LIST_SESSIONS = Method("/dsec.v1.SessionService/ListSessions", ListSessionsRequest, ListSessionsResponse)
STAT = Method("/dsec.v1.FileService/Stat", StatRequest, StatResponse)
LIST_DIRECTORY = Method("/dsec.v1.FileService/ListDirectory", ListDirectoryRequest, ListDirectoryResponse)
MAKE_DIRECTORY = Method("/dsec.v1.FileService/MakeDirectory", MakeDirectoryRequest, MakeDirectoryResponse)
MOVE = Method("/dsec.v1.FileService/Move", MoveRequest, MoveResponse)
REMOVE = Method("/dsec.v1.FileService/Remove", RemoveRequest, RemoveResponse)
WATCH = Method("/dsec.v1.FileService/Watch", WatchRequest, WatchResponse)
LIST_LAYERS = Method("/dsec.v1.LayerService/ListLayers", ListLayersRequest, ListLayersResponse)
GET_LAYER = Method("/dsec.v1.LayerService/GetLayer", GetLayerRequest, GetLayerResponse)
DELETE_LAYER = Method("/dsec.v1.LayerService/DeleteLayer", DeleteLayerRequest, DeleteLayerResponse)
WHO_AM_I = Method("/dsec.v1.IamService/WhoAmI", WhoAmIRequest, WhoAmIResponse)
CREATE_PROJECT = Method("/dsec.v1.IamService/CreateProject", CreateProjectRequest, CreateProjectResponse)
LIST_PROJECTS = Method("/dsec.v1.IamService/ListProjects", ListProjectsRequest, ListProjectsResponse)
DELETE_PROJECT = Method("/dsec.v1.IamService/DeleteProject", DeleteProjectRequest, DeleteProjectResponse)
SET_QUOTA = Method("/dsec.v1.IamService/SetQuota", SetQuotaRequest, SetQuotaResponse)
CREATE_KEY = Method("/dsec.v1.IamService/CreateKey", CreateKeyRequest, CreateKeyResponse)
LIST_KEYS = Method("/dsec.v1.IamService/ListKeys", ListKeysRequest, ListKeysResponse)
REVOKE_KEY = Method("/dsec.v1.IamService/RevokeKey", RevokeKeyRequest, RevokeKeyResponse)
LIST_NODES = Method("/dsec.v1.NodeService/ListNodes", ListNodesRequest, ListNodesResponse)
