"""Bulk submits whose web or server is killed, or whose COMMIT is not answered: all of their tasks or none, once."""

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import psycopg
import pytest

from tests.faults.test_service_lost_commits import through
from tests.support.committing import GATE_KEY
from tests.support.faults import AT_COMMIT, BEFORE_INSERT, insert_fault
from tests.support.http import Response
from tests.support.proxy import MakeProxy
from tests.support.server import TestServer
from tests.support.service import Service, Submitted
from tests.support.waiting import wait_until

TASKS: Final = 20
HELD_BACK: Final = "select pid from pg_locks where locktype = 'advisory' and not granted"
STILL_THERE: Final = "select count(*) from pg_stat_activity where pid = %s"
MADE: Final = "select count(*) from tally.task where input ->> 'marker' like 'bulk %'"


@contextmanager
def held_back(service: Service, moment: str) -> Iterator[list[Response]]:
    """Submit, and hold the server back at this moment until the end; the list has the answer in it then, if any."""
    holder = service.database.connect("test-holder")
    holder.execute("select pg_advisory_lock(%s)", (GATE_KEY,))
    answers: list[Response] = []
    inputs = [{"marker": f"bulk {n}", "effects": str(service.folder / "effects")} for n in range(TASKS)]
    tasks = [{"kind": "echo", "input": {**each, **({"bad": True} if n == 15 else {})}} for n, each in enumerate(inputs)]

    def submit() -> None:
        with suppress(OSError, http.client.HTTPException):
            answers.append(service.api.post("/tasks/batch", {"tasks": tasks}))

    act = f"set local statement_timeout = 0; perform pg_advisory_xact_lock({GATE_KEY})"
    with insert_fault(service.database, moment, act):
        client = threading.Thread(target=submit)
        client.start()
        backend = wait_until(lambda: service.database.value(HELD_BACK), "the server is held back")
        yield answers
        with suppress(psycopg.OperationalError):
            # Gone with the server, if that was killed.
            holder.execute("select pg_advisory_unlock_all()")
        client.join(30)
        assert not client.is_alive()
        ended = "the session has ended, or was answered"
        wait_until(lambda: answers or not service.database.value(STILL_THERE, (backend,)), ended)


def enter(service: Service, status: int, ids: list[int] | None = None) -> None:
    """Enter the answer in the book, a line for each task; status 0 where no answer came."""
    for n in range(TASKS):
        service.book.append(Submitted(f"bulk {n}", status, None, ids[n] if ids else None, 0.0))


def await_end(service: Service) -> None:
    service.await_recovery()
    service.await_all()
    service.reconcile()


@pytest.mark.parametrize(("moment", "made"), [(BEFORE_INSERT, 0), (AT_COMMIT, TASKS)])
def test_a_web_killed_amid_a_bulk_submit_leaves_all_of_its_tasks_or_none(
    service: Service, moment: str, made: int
) -> None:
    service.start()
    service.accepted()

    with held_back(service, moment) as answers:
        service.web.kill()

    assert answers == []
    assert service.database.value(MADE) == made
    enter(service, 0)
    service.web = service.run_program("falcon_app")
    await_end(service)


def test_a_bulk_submit_that_was_committed_is_202_though_the_reply_never_came(
    service: Service, server: TestServer, proxy: MakeProxy
) -> None:
    forwarder = proxy("127.0.0.1", server.port)
    service.start(env=through(forwarder, service))
    service.accepted()

    with held_back(service, AT_COMMIT) as answers:
        forwarder.mute_open()

    (answer,) = answers
    assert answer.status == 202
    assert service.web.saw(f"admission.settled tasks={TASKS} made={TASKS}")
    enter(service, 202, answer.json()["ids"])
    await_end(service)


def test_a_bulk_submit_whose_commit_fell_with_the_server_is_503_and_left_no_task(
    service: Service, server: TestServer
) -> None:
    service.start(env={"TALLY_REQUEST_SECONDS": "20"})
    service.accepted()
    service.await_all()

    with held_back(service, AT_COMMIT) as answers:
        server.kill()
        server.start()

    (answer,) = answers
    assert (answer.status, answer.json()["code"]) == (503, "database-away")
    assert service.web.saw(f"admission.settled tasks={TASKS} made=0")
    assert service.database.value(MADE) == 0
    enter(service, 503)
    await_end(service)
