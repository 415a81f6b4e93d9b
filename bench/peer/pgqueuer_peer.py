"""PgQueuer: `install`, `fill N`, `submit N`, `work BATCH`. Its asyncpg driver on uvloop; PGHOST & Co. say where.

Its types are where it is installed.
"""

# mypy: ignore-errors

import asyncio
import sys
import time

import asyncpg
import uvloop
from mark import mark, stamp
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

BATCH = 1_000


async def main(command: str, number: int) -> None:
    driver = AsyncpgDriver(await asyncpg.connect())
    queries = Queries(driver)
    if command == "install":
        await queries.install()
    elif command == "fill":
        for done in range(0, number, BATCH):
            count = min(BATCH, number - done)
            await queries.enqueue(["noop"] * count, [None] * count, [0] * count)
    elif command == "submit":
        for _ in range(number):
            await queries.enqueue("stamped", b"%d" % time.monotonic_ns())
            await asyncio.sleep(0.02)
    else:
        await work(driver, number)


async def work(driver: AsyncpgDriver, batch: int) -> None:
    worker = PgQueuer(driver)

    @worker.entrypoint("noop")
    async def noop(job: Job) -> None:
        mark()

    @worker.entrypoint("stamped")
    async def stamped(job: Job) -> None:
        stamp(int(job.payload))

    await worker.run(batch_size=batch)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2])))
