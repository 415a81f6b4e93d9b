"""Two claimers at one row, and transactions that fail half-way: one gets it, and of the failed one nothing is left."""

import pytest

from tests.support.database import Database
from tests.support.faults import CLAIM, FINISH, fault, raising, sleeping
from tests.support.service import Service
from tests.support.waiting import wait_until

MARKED = "new.input ? 'marked'"
HELD = 4712
CLAIM_OF = "select attempt, claimed_by, claim_number, started_at from tally.task where id = %s"


def test_of_two_claimers_at_one_row_one_gets_it(service: Service) -> None:
    service.start("--slots", "2")
    rival = service.run_dispatcher("--slots", "2")
    with fault(service.database, CLAIM, f"perform pg_advisory_xact_lock_shared({HELD})"):
        holder = service.database.connect("holder")
        holder.execute("select pg_advisory_lock(%s)", (HELD,))
        task = service.accepted()
        wait_until(lambda: other_claims_passed_over(service.database), "the rival came while the other held the row")
        holder.execute("select pg_advisory_unlock(%s)", (HELD,))
        service.await_all()

    assert service.row(task)[0] == "SUCCEEDED"
    assert service.database.value("select attempt from tally.task") == 1
    assert service.dispatcher.stop() == rival.stop() == 0
    assert service.started == [task]
    service.reconcile()


def other_claims_passed_over(database: Database) -> bool:
    """Has one claim come and gone since another began to wait?"""
    return bool(
        database.value(
            """
            select exists (
                select from pg_stat_activity as one, pg_stat_activity as other
                where one.application_name like 'tally:%:loop' and one.wait_event = 'advisory'
                    and other.application_name like 'tally:%:loop' and other.state = 'idle'
                    and other.query like '%claim_tasks%' and other.query_start > one.query_start
            )
            """
        )
    )


def test_two_dispatchers_share_a_queue_and_no_body_starts_twice(service: Service) -> None:
    service.start("--slots", "4")
    rival = service.run_dispatcher("--slots", "4")
    for _ in range(150):
        service.accepted()

    service.await_all()

    assert service.database.rows("select distinct state, attempt from tally.task") == [("SUCCEEDED", 1)]
    assert service.dispatcher.stop() == rival.stop() == 0
    assert len(service.started) == 150
    service.reconcile()


@pytest.mark.parametrize("at_commit", [False, True], ids=["at the second row", "at the commit"])
def test_of_a_claim_that_fails_half_way_nothing_is_left(service: Service, at_commit: bool) -> None:
    service.web = service.run_program("falcon_app")
    with fault(service.database, CLAIM, raising(), MARKED, at_commit=at_commit):
        first, bad, last = service.accepted(), service.accepted(marked=True), service.accepted()
        service.dispatcher = service.run_dispatcher("--slots", "3", env={"TALLY_LOG_LEVEL": "debug"})
        service.await_all()

    assert service.dispatcher.saw("claim.refused number=1 "), "the first claim was of all three"
    for good in (first, last):
        ((attempt, _, number, _),) = service.database.rows(CLAIM_OF, (good,))
        assert (service.row(good)[0], attempt) == ("SUCCEEDED", 1)
        assert number > 1
    assert service.row(bad) == (
        "FAILED",
        None,
        {"reason": "worker could not claim task", "detail": "refused by a trigger"},
    )
    assert service.database.rows(CLAIM_OF, (bad,)) == [(0, None, None, None)]
    assert service.started == [first, last]
    service.reconcile()


@pytest.mark.parametrize("at_commit", [False, True], ids=["at the last row", "at the commit"])
def test_of_a_finish_that_fails_half_way_nothing_is_left(service: Service, at_commit: bool) -> None:
    database = service.database
    service.start("--slots", "5")
    good = [service.accepted("gate") for _ in range(3)]
    bad = service.accepted("gate", marked=True)
    for task in [*good, bad]:
        service.await_state(task, "RUNNING")
    unwritten = database.rows("select * from tally.task where id = %s", (bad,))
    with fault(database, FINISH, raising("not this one"), MARKED, at_commit=at_commit):
        with fault(database, FINISH, sleeping(0.7), "new.kind = 'echo'"):
            # While its outcome is being written, the four end, and go together afterwards.
            service.accepted()
            wait_until(lambda: asleep(database), "an outcome is being written")
            service.gate.touch()
            service.dispatcher.wait_for("outcomes.failed tasks=4 error=not this one")
        for task in good:
            service.await_state(task, "SUCCEEDED")
        wait_until(lambda: service.dispatcher.saw("outcomes.failed tasks=1"), "it was tried alone")
        assert database.rows("select * from tally.task where id = %s", (bad,)) == unwritten

    service.await_state(bad, "SUCCEEDED")
    service.await_all()
    service.reconcile()


def asleep(database: Database) -> bool:
    return bool(database.value("select exists (select from pg_stat_activity where wait_event = 'PgSleep')"))
