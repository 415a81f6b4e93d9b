"""A web process that freezes in the middle of an admission, while it holds the queue for everybody."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

import pytest

from tests.support.faults import AFTER_INSERT, AT_COMMIT, insert_fault
from tests.support.service import DEADLINE, SLACK, Service, Submitted
from tests.support.waiting import wait_until

GATE_KEY = 4711


@contextmanager
def frozen_within(service: Service, moment: str) -> Iterator[list[Submitted]]:
    """Freeze the web process while its submission is at this moment; the database then goes on without it.

    Yields a list that has the submission's answer in it once it came, after the thaw at the end.
    """
    holder = service.database.connect("test-holder")
    holder.execute("select pg_advisory_lock(%s)", (GATE_KEY,))
    waits = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
    answers: list[Submitted] = []
    with insert_fault(service.database, moment, f"perform pg_advisory_xact_lock({GATE_KEY})"):
        client = threading.Thread(target=lambda: answers.append(service.submit(bad=True)))
        client.start()
        wait_until(lambda: service.database.value(waits) == 1, "the admission is under way")
        service.web.freeze()
        holder.execute("select pg_advisory_unlock(%s)", (GATE_KEY,))
        wait_until(lambda: service.database.value(waits) == 0, "the statement has ended")
    try:
        yield answers
    finally:
        service.web.send(signal.SIGCONT)
        client.join(20)
    assert not client.is_alive()


MOMENTS = pytest.mark.parametrize(("moment", "settled"), [(AFTER_INSERT, 503), (AT_COMMIT, 202)], ids=["before", "in"])
"""Frozen before its commit, it will find that there is no row; frozen in its commit, that there is one."""


@MOMENTS
def test_a_web_process_that_freezes_in_an_admission_holds_the_others_up_for_3_seconds_at_most(
    service: Service, moment: str, settled: int
) -> None:
    service.start()
    other = service.run_program("falcon_app")
    service.submit(web=other)
    with frozen_within(service, moment) as answers:
        frozen = monotonic()

        wait_until(lambda: service.submit(web=other).status == 202, "the other one admits again", 5)

        assert monotonic() - frozen < 3 + SLACK
        rows = service.database.value("select count(*) from tally.task where input ? 'bad'")
        assert rows == (settled == 202)

    assert [answer.status for answer in answers] == [settled]
    assert not service.web.saw("database.away") or settled == 503
    service.await_recovery()
    service.await_all()
    service.reconcile()


@pytest.mark.long
@MOMENTS
def test_what_a_web_process_was_admitting_is_settled_though_it_thaws_after_the_deadline(
    service: Service, moment: str, settled: int
) -> None:
    service.start()
    with frozen_within(service, moment) as answers:
        frozen = monotonic()
        wait_until(lambda: monotonic() - frozen > 2 * DEADLINE, "the deadline has passed")

    assert [answer.status in {settled, 504} for answer in answers] == [True]
    service.await_recovery()
    service.await_all()
    service.reconcile()
