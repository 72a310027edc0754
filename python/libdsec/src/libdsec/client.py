"""The entrance: creates and finds sandboxes, and holds the catalogue, projects, keys and nodes."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from types import TracebackType
from typing import NamedTuple

from ._http.calls import Calls
from ._http.transport import Transport
from ._wire import messages as m
from .command_options import number, strings, text, whole_number
from .create import create_sandbox
from .create_many import CreateManyResult, create_many
from .errors import DsecError, printable
from .iam import Keys, Projects
from .layers import Layers
from .nodes import Nodes
from .results import number_of
from .run_args import DSecContainerRunArgs
from .sandbox import Sandbox
from .sandbox_info import SandboxInfo, sandbox_info_of
from .settings import load_settings


class Traffic(NamedTuple):
    """What a client has under way in one event loop."""

    connections: int
    #: Calls that count against `max_connections`, and those that wait for their turn.
    calls: int
    calls_waiting: int
    #: Creates that are under way (waiting for capacity included), and those that wait for their turn.
    creates: int
    creates_waiting: int


class DSecClient:
    """Talks to one platform. May be used from any number of tasks, event loops and threads, and after a fork.

    >>> async with DSecClient() as client:
    ...     args = DSecContainerRunArgs(container_image="base", memory_limit_mb=512)
    ...     async with await client.run_container(args) as sandbox:
    ...         print((await sandbox.run_shell("echo hello")).stdout, end="")
    hello
    """

    def __init__(
        self,
        endpoint: str | None = None,
        api_key: str | None = None,
        *,
        request_timeout: float = 60.0,
        max_connections: int = 64,
    ) -> None:
        """Connects with the first call, or with `open`.

        Args:
            endpoint: "http://host:port". Default: DSEC_ENDPOINT, else the configuration file.
            api_key: Default: DSEC_API_KEY, else the configuration file.
            request_timeout: Seconds for one call, and within which an interrupted one is taken up again.
            max_connections: Calls on the way at once, for each event loop; more wait here. Commands, streams and
                transfers are not counted after their first second.

        Raises:
            DsecError: NOT_CONFIGURED, INVALID_ARGUMENT
        """
        settings = load_settings(endpoint, api_key)
        if number(request_timeout, "request_timeout") <= 0:
            raise DsecError("INVALID_ARGUMENT", f"request_timeout is {request_timeout}; it must be above 0")
        if whole_number(max_connections, "max_connections") < 2:
            raise DsecError("INVALID_ARGUMENT", f"max_connections is {max_connections}; it must be at least 2")
        self.endpoint = settings.endpoint
        self._calls = Calls(Transport(settings, max_connections), request_timeout)
        #: The catalogue of images and layers.
        self.layers = Layers(self._calls)
        self.projects = Projects(self._calls)
        self.keys = Keys(self._calls)
        self.nodes = Nodes(self._calls)

    def __repr__(self) -> str:
        return f"<DSecClient {self.endpoint}>"

    async def open(self) -> DSecClient:
        """Makes sure that the platform is there and knows the key. Without it the first call does.

        Raises:
            DsecError: UNAVAILABLE, UNAUTHENTICATED
        """
        await self._calls.call(m.WHO_AM_I, m.WhoAmIRequest())
        return self

    async def run_container(
        self,
        args: DSecContainerRunArgs,
        *,
        timeout: float = 120.0,
        create_key: str | None = None,
        wait_for_quota: bool = False,
    ) -> Sandbox:
        """Creates a container sandbox and returns when a command has been answered in it.

        Any number may be asked at once: what the platform has no room for waits, with jitter, until `timeout` is over.
        Cancelling the task stops what was made meanwhile.

        Args:
            timeout: Seconds until it must be ready, waiting for capacity included. Time in this client's own queue
                (more than 48 creates at once) is not counted.
            create_key: [A-Za-z0-9_-]{8,64}. The same key never makes two sandboxes. Default: a random one.
            wait_for_quota: Wait for quota as for capacity, instead of failing with QUOTA_EXCEEDED.

        Raises:
            DsecError: CAPACITY_FULL, QUOTA_EXCEEDED, NEVER_FITS, LAYER_NOT_FOUND, INVALID_LIMIT, …
        """
        made = await create_sandbox(
            self._calls, args, timeout=timeout, create_key=create_key, wait_for_quota=wait_for_quota
        )
        return Sandbox(self._calls, made.sandbox_id, made)

    def run_containers(
        self,
        args: DSecContainerRunArgs,
        *,
        count: int,
        concurrency: int = 32,
        timeout: float = 120.0,
        wait_for_quota: bool = False,
    ) -> AsyncGenerator[CreateManyResult, None]:
        """Creates `count` of them; yields each, or its error, as it becomes ready. Leaving the loop early (with
        `contextlib.aclosing`, or when the iterator is collected) stops the rest.

        Args:
            concurrency: Creates in flight at once.
            timeout: Seconds for each.

        >>> async for result in client.run_containers(DSecContainerRunArgs("base"), count=3):
        ...     print(result.error or (await result.sandbox.stop()).state)
        STOPPED
        STOPPED
        STOPPED
        """

        async def one() -> Sandbox:
            return await self.run_container(args, timeout=timeout, wait_for_quota=wait_for_quota)

        return create_many(one, count, concurrency)

    async def connect(self, id: str) -> Sandbox:
        """A handle of a sandbox that exists. Raises DsecError SANDBOX_NOT_FOUND, SANDBOX_ENDED, SANDBOX_LOST."""
        sandbox = self.sandbox(id)
        await sandbox.info()
        return sandbox

    def sandbox(self, id: str) -> Sandbox:
        """The same without asking the server: the first call tells whether it is there."""
        if not re.fullmatch(r"[a-z][a-z0-9]{0,11}[a-z2-7]{20}", text(id, "id")):
            raise DsecError("SANDBOX_NOT_FOUND", f"{printable(id)} is not a sandbox ID")
        return Sandbox(self._calls, id)

    async def list(
        self,
        *,
        labels: Mapping[str, str] | None = None,
        job: str | None = None,
        project: str | None = None,
        states: Iterable[str] = (),
        recursive: bool = False,
        page_size: int = 500,
        on_unreachable: Callable[[list[str]], None] | None = None,
    ) -> AsyncGenerator[SandboxInfo, None]:
        """Sandboxes that match, page by page.

        Args:
            labels: All must match.
            states: "RUNNING", … Default: those that live.
            recursive: Also projects below.
            page_size: At most 1000.
            on_unreachable: Told the edges that did not answer: their sandboxes are missing in the list.

        >>> [info.state async for info in client.list(labels={"made-by": "nobody"})]
        []
        """
        numbers = []
        for state in states:
            found = number_of(m.SANDBOX_STATE, text(state, "a state"))
            if found is None:
                raise DsecError("INVALID_ARGUMENT", f"{printable(state)} is no state of a sandbox")
            numbers.append(found)
        request = m.ListSandboxesRequest(
            project=text(project, "project"),
            labels=strings(labels, "labels"),
            job=text(job, "job"),
            states=numbers,
            recursive=recursive,
            page_size=whole_number(page_size, "page_size"),
        )
        while True:
            page = await self._calls.call(m.LIST_SANDBOXES, request)
            if page.unreachable_edges and on_unreachable is not None:
                on_unreachable(page.unreachable_edges)
            for sandbox in page.sandboxes:
                yield sandbox_info_of(sandbox)
            request.page_token = page.next_page_token
            if request.page_token == "":
                return

    async def traffic(self) -> Traffic:
        """What is under way in this event loop, for watching a burst.

        >>> (await client.traffic()).creates_waiting
        0
        """
        pool = await self._calls.http.pool()
        return Traffic(pool.connections, pool.calls, pool.calls_waiting, pool.creating, pool.creates_waiting)

    def close_now(self) -> None:
        """Ends open calls with CANCELLED. Sandboxes go on."""
        self._calls.http.close_now()

    async def close(self) -> None:
        """The same, after what was given up by a cancelled task has been put away (at most some seconds)."""
        await self._calls.settled()
        self.close_now()

    async def __aenter__(self) -> DSecClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
