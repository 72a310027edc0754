"""DSec: sandboxes in which language-model agents are trained and evaluated.

>>> from libdsec import DSecClient, DSecContainerRunArgs
"""

__version__ = "0.1.0"

from .client import DSecClient, Traffic
from .command import Command
from .command_options import CommandLine, InputSource, PtySize
from .create_many import CreateManyResult
from .errors import (
    AbortedError,
    AlreadyExistsError,
    CanceledError,
    ConnectionError,
    DataLossError,
    DeadlineExceededError,
    DsecError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
    is_infrastructure_error,
    is_interruption,
    is_reason,
    is_sandbox_gone,
)
from .files import FileEvent, FileInfo, Files
from .files_unpack import DownloadReport, Skipped
from .iam import Key, Keys, NewKey, Project, Projects, Quota
from .layers import ImageConfig, Layer, Layers
from .nodes import NodeInfo, Nodes
from .output_stream import CommandStream, OutputChunk
from .results import CommandInfo, CommandOutcome, CommandResult, PerStream
from .run_args import DSecContainerRunArgs, NetworkRules, StartCommand
from .sandbox import Sandbox
from .sandbox_info import (
    LayerUse,
    NetworkUpdate,
    Notice,
    SandboxEvent,
    SandboxInfo,
    SandboxUsage,
    SessionInfo,
)
from .session import Session
from .settings import Settings, config_file, load_settings
from .terminal import Terminal

__all__ = [
    "AbortedError",
    "AlreadyExistsError",
    "CanceledError",
    "Command",
    "CommandInfo",
    "CommandLine",
    "CommandOutcome",
    "CommandResult",
    "CommandStream",
    "ConnectionError",
    "CreateManyResult",
    "DSecClient",
    "DSecContainerRunArgs",
    "DataLossError",
    "DeadlineExceededError",
    "DownloadReport",
    "DsecError",
    "FailedPreconditionError",
    "FileEvent",
    "FileInfo",
    "Files",
    "ImageConfig",
    "InputSource",
    "InternalError",
    "InvalidArgumentError",
    "Key",
    "Keys",
    "Layer",
    "LayerUse",
    "Layers",
    "NetworkRules",
    "NetworkUpdate",
    "NewKey",
    "NodeInfo",
    "Nodes",
    "NotFoundError",
    "Notice",
    "OutputChunk",
    "PerStream",
    "PermissionDeniedError",
    "Project",
    "Projects",
    "PtySize",
    "Quota",
    "ResourceExhaustedError",
    "Sandbox",
    "SandboxEvent",
    "SandboxInfo",
    "SandboxUsage",
    "Session",
    "SessionInfo",
    "Settings",
    "Skipped",
    "StartCommand",
    "Terminal",
    "Traffic",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "config_file",
    "is_infrastructure_error",
    "is_interruption",
    "is_reason",
    "is_sandbox_gone",
    "load_settings",
]
