from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Iterator

import pytest
from support import Platform

from libdsec import DSecClient, DSecContainerRunArgs

#: Sandboxes that the tests' node takes at once.
NODE_LIMIT = 300
BASE = DSecContainerRunArgs(container_image="base")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine function has an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(scope="session")
def platform() -> Iterator[Platform]:
    one = Platform(maxSandboxes=NODE_LIMIT)
    yield one
    one.end()


@pytest.fixture
def client(platform: Platform) -> DSecClient:
    """Closes itself with the test's loop."""
    return DSecClient(platform.endpoint, platform.api_key)


@pytest.fixture(scope="session")
def shared(platform: Platform) -> str:
    """ID of a sandbox that tests share."""
    return make_sandbox(platform)


@pytest.fixture(scope="session")
def shared_of_the_twin(platform: Platform) -> str:
    """The same for the synchronous client: the table's command IDs are known in the first one."""
    return make_sandbox(platform)


def make_sandbox(platform: Platform) -> str:
    async def make() -> str:
        async with DSecClient(platform.endpoint, platform.api_key) as client:
            return (await client.run_container(BASE)).id

    return asyncio.run(make())


@pytest.fixture(autouse=True)
def _no_settings_of_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name in ("DSEC_ENDPOINT", "DSEC_API_KEY"):
            monkeypatch.delenv(name)
