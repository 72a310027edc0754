"""One measurement with the Python library: what the bench's TypeScript client does, told the same way."""

import asyncio
import json
import sys
import time

from libdsec import DSecClient, DSecContainerRunArgs, Sandbox

ENVIRONMENT = DSecContainerRunArgs(container_image="base", workspace="workspace", toolkits=["toolkit"])
FLIGHT = 64


async def create(client: DSecClient, count: int) -> list[float]:
    made: list[Sandbox] = []
    numbers = iter(range(count))

    async def lane() -> None:
        for _ in numbers:
            sandbox = await client.run_container(ENVIRONMENT)
            if not (await sandbox.exec(["/bin/true"])).ok:
                raise RuntimeError("/bin/true failed")
            made.append(sandbox)

    start = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(FLIGHT)))
    seconds = time.perf_counter() - start
    await asyncio.gather(*(sandbox.stop() for sandbox in made))
    return [seconds]


async def round_trips(sandbox: Sandbox, count: int) -> list[float]:
    times = []
    for _ in range(count + 50):
        start = time.perf_counter()
        if not (await sandbox.exec(["/bin/true"])).ok:
            raise RuntimeError("/bin/true failed")
        times.append(time.perf_counter() - start)
    return times[50:]


async def transfer(sandbox: Sandbox, source: str, back: str) -> list[float]:
    start = time.perf_counter()
    await sandbox.files.upload(source, "/tmp/transfer")
    middle = time.perf_counter()
    await sandbox.files.download("/tmp/transfer", back)
    return [middle - start, time.perf_counter() - middle]


async def main(what: str, count: str, source: str, back: str) -> None:
    async with DSecClient() as client:
        if what == "create":
            times = await create(client, int(count))
        else:
            async with await client.run_container(ENVIRONMENT) as sandbox:
                times = await (round_trips(sandbox, int(count)) if what == "exec" else transfer(sandbox, source, back))
    print(json.dumps(times))


asyncio.run(main(*sys.argv[1:]))
