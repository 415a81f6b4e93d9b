"""PostgreSQL stopped and started again, seen by those who ask the service over HTTP."""

from time import monotonic
from typing import Literal

import pytest

from tests.support.server import TestServer
from tests.support.service import (
    DEADLINE,
    SLACK,
    Service,
    at_the_same_time,
    file_count,
    resident_bytes,
    thread_count,
)
from tests.support.waiting import wait_until

AT_ONCE = 0.5
"""Far from a deadline, and enough for a busy machine: the quickest of a few must be quicker."""


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_stopped_database_is_refused_in_time_then_at_once_and_outlived(
    service: Service, server: TestServer, mode: Literal["fast", "immediate"]
) -> None:
    service.start()
    old = service.accepted()
    service.await_state(old, "SUCCEEDED")
    running = service.accepted("gate")
    service.await_state(running, "RUNNING")
    assert service.read(old) == 200

    server.stop(mode)

    submitted, read = at_the_same_time(service.submit, lambda: service.read(old))
    assert (submitted.status, submitted.code, read) == (503, "database-away", 503)
    assert service.slowest() < DEADLINE + SLACK
    assert service.probe("/readyz") == 503
    assert service.probe("/healthz") == 200
    assert min(service.submit().seconds for _ in range(3)) < AT_ONCE
    assert min(quickly(service, old) for _ in range(3)) < AT_ONCE
    service.gate.touch()
    service.dispatcher.wait_for("write.failed")

    server.start()

    service.await_recovery()
    service.await_all()
    assert service.read(old) == 200
    assert service.row(running) == ("SUCCEEDED", {"canceled": False}, None)
    service.reconcile()
    assert (service.web.stop(), service.dispatcher.stop()) == (0, 0)


def quickly(service: Service, task: int) -> float:
    began = monotonic()
    assert service.read(task) == 503
    return monotonic() - began


def test_after_an_outage_the_connections_are_as_many_as_before_and_recovery_is_quick(
    service: Service, server: TestServer
) -> None:
    """A pool that retries by itself gives up after some minutes, or opens too many: ours does not retry."""
    service.start(env={"TALLY_DATABASE_CONNECTIONS": "2"})
    old = service.accepted()
    server.stop()

    with service.load(old, clients=4):
        wait_until(lambda: len(service.book) > 100, "a hundred submits were refused", seen=lambda: len(service.book))
        server.start()
        service.await_recovery(seconds=5)

    sessions = (
        "select count(*) from pg_stat_activity where datname = current_database()"
        " and starts_with(application_name, 'tally-web')"
    )
    assert service.database.value(sessions) <= 3
    assert service.slowest() < DEADLINE + SLACK
    service.await_all()
    service.reconcile()


def test_an_outage_of_many_requests_leaves_no_thread_no_file_and_no_memory_behind(
    service: Service, server: TestServer
) -> None:
    service.start()
    old = service.accepted()
    outage(service, server, old, requests=60)
    both = (service.web, service.dispatcher)
    threads, files, memory = (
        [measure(each) for each in both] for measure in (thread_count, file_count, resident_bytes)
    )

    outage(service, server, old, requests=1200)

    assert [thread_count(each) for each in both] == threads
    wait_until(
        lambda: all(file_count(each) <= before + 2 for each, before in zip(both, files, strict=True)),
        "files are closed",
        seen=lambda: ([file_count(each) for each in both], files),
    )
    grown = [resident_bytes(each) - before for each, before in zip(both, memory, strict=True)]
    assert max(grown) < 4 * 1024 * 1024, grown
    service.await_all()
    service.reconcile()


def outage(service: Service, server: TestServer, old: int, requests: int) -> None:
    """Stop the server, ask so many times, start it again, and wait until the service is back."""
    asked = len(service.book)
    server.stop()
    with service.load(old, clients=8, pause=0.002):
        wait_until(lambda: len(service.book) > asked + requests / 2, "enough was asked", 60)
    server.start()
    service.await_recovery()
    assert service.read(old) == 200
