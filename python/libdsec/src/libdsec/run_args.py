"""What may be asked of a container, and the request it becomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ._wire import messages as m
from .command_options import milliseconds, number, random_id, strings, text, to_bytes, user_of, whole_number, wrong_type
from .errors import DsecError

#: Service ("npm", "pypi", "crates", "go", "debian", "maven") or domain ("*.example.org:443") → allowed.
NetworkRules = Mapping[str, bool]


@dataclass
class StartCommand:
    """A command that runs in the background once the sandbox is ready: `argv` or `shell`."""

    argv: Sequence[str | bytes] | None = None
    shell: str | None = None
    #: Shell text that exits with 0 when it is ready; create waits for it.
    ready_probe: str | None = None


@dataclass
class DSecContainerRunArgs:
    """What a container sandbox is made of. Limits are ceilings, not reservations; what is absent has the default of
    docs/limits.md."""

    #: "name", "name@v3", "project/name@v3", "public/name" or "sha256:…" of a base or an imported image.
    container_image: str
    workspace: str | None = None
    #: Lowest first.
    toolkits: Sequence[str] | None = None
    #: MiB.
    memory_limit_mb: int | None = None
    #: MiB.
    disk_limit_mb: int | None = None
    pids_limit: int | None = None
    #: Cores; absent: no ceiling, only a weight.
    cpu_cores_limit: float | None = None
    #: MiB that placement and quotas count. Default: the smaller of 32 MiB and the limit.
    memory_request_mb: int | None = None
    #: Cores that placement and quotas count. Default 0.02.
    cpu_cores_request: float | None = None
    env: Mapping[str, str] | None = None
    #: The same, but in no info, event or log.
    secret_env: Mapping[str, str] | None = None
    #: Name or number. Default: the image's, else root.
    init_user: str | int | None = None
    working_dir: str | None = None
    hostname: str | None = None
    network_rules: NetworkRules | None = None
    labels: Mapping[str, str] | None = None
    job: str | None = None
    #: Seconds of whole life. Default 24 h.
    ttl: float | None = None
    #: Seconds without use after which it is stopped. Default: none.
    ttl_running_stop: float | None = None
    #: What cannot be honoured is an error instead of a notice.
    strict: bool = False
    #: Run in the background once ready. The image's entry point never is.
    start_command: StartCommand | None = None
    #: "native" (default) or "runc".
    runtime: str | None = None
    nested_user_namespaces: bool = False
    no_new_privs: bool = False
    #: Path of a project at or below the key's own. Default: the key's own.
    project: str | None = None


def new_create_key() -> str:
    return f"k{random_id(26)}"


def create_request(args: DSecContainerRunArgs) -> m.CreateSandboxRequest:
    """The request without key, deadline and retry. @raises DsecError: INVALID_ARGUMENT, INVALID_LIMIT"""
    if not isinstance(args, DSecContainerRunArgs):
        raise wrong_type("what to run", args, "DSecContainerRunArgs")
    if text(args.container_image, "container_image") == "":
        raise DsecError("INVALID_ARGUMENT", "container_image is missing; it names a base or an imported image")
    if isinstance(args.toolkits, str):
        raise wrong_type("toolkits", args.toolkits, "a list of str")
    start = args.start_command
    return m.CreateSandboxRequest(
        project=text(args.project, "project"),
        labels=strings(args.labels, "labels"),
        job=text(args.job, "job"),
        ttl_ms=_limit(args.ttl, "ttl", 1000),
        idle_ms=_limit(args.ttl_running_stop, "ttl_running_stop", 1000),
        strict=bool(args.strict),
        container=m.ContainerArgs(
            image=args.container_image,
            workspace=text(args.workspace, "workspace"),
            toolkits=[text(one, "a toolkit") for one in args.toolkits or ()],
            memory_limit_mb=_limit(args.memory_limit_mb, "memory_limit_mb"),
            disk_limit_mb=_limit(args.disk_limit_mb, "disk_limit_mb"),
            pids_limit=_limit(args.pids_limit, "pids_limit"),
            cpu_cores_limit=_cores(args.cpu_cores_limit, "cpu_cores_limit"),
            memory_request_mb=_limit(args.memory_request_mb, "memory_request_mb"),
            cpu_cores_request=_cores(args.cpu_cores_request, "cpu_cores_request"),
            env=strings(args.env, "env"),
            secret_env=strings(args.secret_env, "secret_env"),
            init_user=user_of(args.init_user, "init_user"),
            working_dir=text(args.working_dir, "working_dir"),
            hostname=text(args.hostname, "hostname"),
            network_rules=None if args.network_rules is None else rules_of(args.network_rules),
            runtime=text(args.runtime, "runtime"),
            nested_user_namespaces=bool(args.nested_user_namespaces),
            no_new_privs=bool(args.no_new_privs),
            start_command=None
            if start is None
            else m.StartCommand(
                [to_bytes(part, "start_command.argv") for part in start.argv or ()],
                text(start.shell, "start_command.shell"),
                text(start.ready_probe, "start_command.ready_probe"),
            ),
        ),
    )


def rules_of(rules: NetworkRules) -> m.NetworkRules:
    if not isinstance(rules, Mapping):
        raise wrong_type("network_rules", rules, "a dict of str to bool")
    for name, allowed in rules.items():
        if not isinstance(name, str) or not isinstance(allowed, bool):
            raise wrong_type(f"network_rules[{name!r}]", allowed, "bool, and its name str")
    return m.NetworkRules(dict(rules))


def _limit(value: float | None, name: str, factor: int = 1) -> int:
    """0 on the wire means "the default", so a caller's 0 cannot be told from nothing there: refused here."""
    if value is not None and number(value, name) == 0:
        raise DsecError("INVALID_LIMIT", f"{name} is 0; leave it out for the default")
    return milliseconds(value, name) if factor == 1000 else whole_number(value, name)


def _cores(value: float | None, name: str) -> float:
    if value is not None and number(value, name) <= 0:
        raise DsecError("INVALID_LIMIT", f"{name} is {value}; it must be above 0")
    return float(value or 0)
