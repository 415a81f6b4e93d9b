"""Stopping a program that is still on its way in."""

from pathlib import Path
from signal import SIGTERM

import pytest

from tests.support.database import Database
from tests.support.program import RunDispatcher
from tests.support.server import TestServer
from tests.support.service import Service
from tests.support.waiting import wait_until


@pytest.mark.parametrize("module", ["falcon_app", "dispatcher"])
def test_every_wait_of_a_start_ends_at_sigterm(service: Service, server: TestServer, module: str) -> None:
    server.stop()
    program = service.run_program(module, ready=False)
    program.wait_for("database.away")

    assert program.stop() == 0

    assert not program.saw("ready ")


def test_one_that_is_stopped_while_it_enters_leaves_before_it_exits_with_0(
    database: Database, run_dispatcher: RunDispatcher
) -> None:
    holder = database.connect("test-holder")
    with holder.transaction():
        holder.execute("lock table tally.dispatcher in exclusive mode")
        dispatcher = run_dispatcher(ready=False)
        waits = (
            "select count(*) from pg_stat_activity where application_name like 'tally:%%' and wait_event_type = 'Lock'"
        )
        wait_until(lambda: database.value(waits), "it is entering")
        dispatcher.send(SIGTERM)
        wait_until(lambda: not is_pending(dispatcher.pid, SIGTERM), "the signal was taken")

    assert dispatcher.wait() == 0
    assert database.rows("select stopped_why from tally.dispatcher") == [("left",)]


def is_pending(pid: int, number: int) -> bool:
    """Does a signal to the process still wait to be taken?"""
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(status.split("ShdPnd:")[1].split()[0], 16) & 1 << (number - 1))
