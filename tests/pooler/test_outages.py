"""PgBouncer, or the server behind it, goes away and comes back under load: refused in time, outlived, reconciled."""

from collections.abc import Callable
from time import monotonic
from typing import Literal

import pytest

from tests.pooler.bouncer import Bouncer
from tests.support.program import Program
from tests.support.server import TestServer
from tests.support.service import DEADLINE, SLACK, Service
from tests.support.waiting import wait_until

pytestmark = pytest.mark.scale

AT_ONCE = 0.5
"""Far from a deadline, and enough for a busy machine: the quickest of a few must be quicker."""


def outlive(service: Service, begin: Callable[[], object], end: Callable[[], object], *, until: float = 0) -> None:
    """Under load, begin an outage, see it refused in time and then at once, end it, and see the service back."""
    service.start()
    known = service.accepted()
    service.await_all()
    with service.load(known):
        await_asked(service, 20)
        begun = monotonic()
        begin()
        wait_until(lambda: service.probe("/readyz") == 503 and monotonic() - begun > until, "it is not ready")
        assert min(service.submit().seconds for _ in range(5)) < AT_ONCE
        assert service.probe("/healthz") == 200
        end()
        service.await_recovery()
        assert service.read(known) == 200
    assert service.slowest() < DEADLINE + SLACK
    assert {entry.code for entry in service.book if entry.status != 202} <= {"database-away", "outcome-unknown"}
    service.await_all()
    service.reconcile()
    assert (service.web.stop(), service.dispatcher.stop()) == (0, 0)


def await_asked(service: Service, number: int) -> None:
    """Wait until so many submits were answered: the service is under load."""
    wait_until(lambda: len(service.book) > number, f"{number} submits were answered")


def test_a_pooler_that_is_killed_is_outlived(service: Service, bouncer: Bouncer) -> None:
    outlive(service, bouncer.kill, bouncer.start)

    assert is_unmoved(service.dispatcher)


def test_a_pooler_that_is_stopped_is_outlived(service: Service, bouncer: Bouncer) -> None:
    outlive(service, bouncer.stop, bouncer.start)

    assert is_unmoved(service.dispatcher)


def test_a_pooler_that_freezes_is_refused_in_time_and_outlived(service: Service, bouncer: Bouncer) -> None:
    outlive(service, bouncer.freeze, bouncer.thaw, until=4)

    assert is_unmoved(service.dispatcher)


def is_unmoved(dispatcher: Program) -> bool:
    """Has it had one session all the time, and no trouble?"""
    return dispatcher.output.count("session.listening") == 1 and "WARNING" not in dispatcher.output


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_server_that_is_stopped_behind_the_pooler_is_outlived(
    service: Service, server: TestServer, mode: Literal["fast", "immediate"]
) -> None:
    outlive(service, lambda: server.stop(mode), server.start)


def test_a_server_that_is_killed_behind_the_pooler_is_outlived(service: Service, server: TestServer) -> None:
    outlive(service, server.kill, server.start)


def test_a_server_that_freezes_behind_the_pooler_is_outlived(service: Service, server: TestServer) -> None:
    outlive(service, server.freeze, server.thaw, until=4)


def test_a_pause_is_refused_in_time_and_ends_with_resume(service: Service, bouncer: Bouncer) -> None:
    outlive(service, lambda: bouncer.console("pause"), lambda: bouncer.console("resume"), until=4)


def test_a_database_that_is_killed_in_the_console_is_back_after_resume(service: Service, bouncer: Bouncer) -> None:
    """KILL drops every client and every server connection, in the midst of whatever they do."""
    outlive(
        service,
        lambda: bouncer.console(f"kill {bouncer.database}"),
        lambda: bouncer.console(f"resume {bouncer.database}"),
    )


@pytest.mark.parametrize("command", ["reload", "reconnect", "pause; resume"])
def test_what_an_administrator_does_in_passing_refuses_nobody(service: Service, bouncer: Bouncer, command: str) -> None:
    service.start(env={"TALLY_REQUEST_SECONDS": "10", "TALLY_STATEMENT_SECONDS": "8"})
    known = service.accepted()

    with service.load(known):
        for _ in range(5):
            await_asked(service, len(service.book) + 10)
            for each in command.split("; "):
                bouncer.console(each)

    assert {entry.status for entry in service.book} == {202}
    assert {status for status, _ in service.reads} == {200}
    service.await_all()
    service.reconcile()
