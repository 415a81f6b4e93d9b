"""The disk is full: a tablespace on a small file system where one may be mounted, else a trigger that says so."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

from evidence.record import Record
from evidence.stage import Stage
from evidence.step import Claim, equal, step
from evidence.steps.outages import back, one_done_one_running, outlived
from evidence.steps.resources import refused_in_time


@contextmanager
def _small_disk(stage: Stage) -> Iterator[str | None]:
    """Mount 16 MiB and move the tasks there, in a tablespace of this name; None where nothing may be mounted."""
    from sql.account import server_account  # noqa: PLC0415 - what is claimed is worked out without the driver

    owner, place = server_account(), Path(tempfile.mkdtemp(prefix="tally_disk_"))
    refused = _mount(place, owner.pw_uid if owner else os.getuid())
    stage.event("disk", how=f"a trigger, {refused}" if refused else "a tablespace on a tmpfs of 16 MiB, filled")
    try:
        if refused:
            yield None
        else:
            with _tasks_in_tablespace(stage, place):
                yield place.name
    finally:
        if not refused:
            subprocess.run(["umount", "--lazy", place], check=True)
        place.rmdir()


def _mount(place: Path, owner: int) -> str:
    """Mount a small file system that is the owner's; returns why that may not be, empty where it may."""
    command = ["mount", "-t", "tmpfs", "-o", f"size=16m,mode=700,uid={owner}", "tmpfs", str(place)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as fault:
        return f"for no file system may be mounted: {fault}"
    return ""


@contextmanager
def _tasks_in_tablespace(stage: Stage, place: Path) -> Iterator[None]:
    stage.sql(f"create tablespace {place.name} location '{place}'")
    try:
        stage.sql(f"alter table tally.task set tablespace {place.name}")
        yield
    finally:
        stage.sql("drop table if exists filling")
        stage.sql("alter table tally.task set tablespace pg_default")
        stage.sql(f"drop tablespace {place.name}")


@contextmanager
def _full(stage: Stage, disk: str | None) -> Iterator[None]:
    """Leave no room for another row while inside."""
    from psycopg.errors import DiskFull  # noqa: PLC0415 - as above

    if disk is None:
        with stage.database.fault("insert_disk_full"):
            yield
    else:
        stage.sql(f"create table filling (bytes text) tablespace {disk}")
        stage.sql("alter table filling alter bytes set storage external")
        for size in (1_000_000, 100_000, 7_000):
            with suppress(DiskFull):
                while True:
                    stage.sql("insert into filling values (repeat('x', %(size)s))", size=size)
        yield
        stage.sql("drop table filling")
    stage.event("room again")


@step("disk-full", "no room for another row: 503 in time and no row, no task fails for it, and it passes")
def disk_full(stage: Stage) -> None:
    # What can't be compressed needs pages of its own.
    large: dict[str, Any] = {"padding": token_hex(20_000), "insert_disk_full": True}
    with _small_disk(stage) as disk:
        web, dispatcher = stage.web(), stage.dispatcher()
        api = stage.client(web)
        old, running, let_end = one_done_one_running(stage, api)
        with _full(stage, disk):
            for _ in range(3):
                api.submit("echo", label="refused", **large)
            let_end()
            stage.client(web.admin).get("/healthz", label="health")
        back(stage, web)
        api.submit("echo", label="as large", **large)
        api.get(f"/tasks/{old}", label="old id")
        api.follow(running)
        dispatcher.stop()
        web.stop()


@disk_full.must
def _(record: Record) -> Iterator[Claim]:
    yield Claim("how the disk was full", record.event("disk")["how"], True)
    faults = [each.fault for each in record.statements if "filling" in each.statement and each.fault]
    if "tablespace" in record.event("disk")["how"]:
        told = [str(each).partition(" ")[0] for each in faults]
        yield equal("the server itself said so, for rows large and small", told, ["53100"] * 3)
    yield from refused_in_time(record)
    yield equal("health stays 200", record.answer("health").status, 200)
    yield from outlived(record, record.event("room again")["at"])
    yield equal("the same submit is 202 then", record.answer("as large").status, 202)
    yield equal("no task failed", [row["id"] for row in record.tasks if row["state"] == "FAILED"], [])
