"""A claim that is refused or slow: of one task, whatever the error, and not of the others."""

from random import uniform
from threading import Event, Thread

import pytest

from tests.support.faults import CLAIM, fault, raising, sleeping
from tests.support.ledger import Ledger
from tests.support.program import RunDispatcher
from tests.support.service import Service
from tests.support.waiting import wait_until

MARKED = "new.input ? 'marked'"


@pytest.mark.parametrize("slots", ["1", "11"])
def test_a_text_whose_claim_is_refused_fails_with_zeros_and_the_others_are_counted(
    service: Service, slots: str
) -> None:
    service.web = service.run_program("falcon_app")
    with fault(service.database, CLAIM, raising(), "new.input ->> 'text' = 'not this'"):
        good = [service.submit_text(f"Go one {number}").task for number in range(5)]
        bad = service.submit_text("not this").task
        good += [service.submit_text(f"Go one {number}").task for number in range(5, 10)]
        service.dispatcher = service.run_dispatcher("--slots", slots)
        service.await_all()

    assert bad is not None
    assert [service.statistics(each or 0) for each in good] == [("SUCCEEDED", 3, 8, 8, False)] * 10
    assert service.statistics(bad) == ("FAILED", 0, 0, 0, False)
    document = service.api.task(bad)
    assert document["error"] == {"reason": "worker could not claim task", "detail": "refused by a trigger"}
    assert (document["attempt"], document["started_at"], document["result"]) == (0, None, None)
    service.reconcile()


# A missing column, a lock that is not available: the installation's or the world's fault, if every task met it.
@pytest.mark.parametrize("code", ["42703", "55P03"])
def test_whatever_the_claim_of_one_task_is_refused_with_the_others_run_in_one_slot(service: Service, code: str) -> None:
    service.start("--slots", "1")
    with fault(service.database, CLAIM, raising("no", code), MARKED):
        bad = service.accepted(marked=True)
        good = [service.accepted() for _ in range(5)]
        for each in good:
            service.await_state(each, "SUCCEEDED")
        # What may be the world's fault fails nobody.
        assert service.state(bad) == "QUEUED"

    service.await_all()
    assert sorted(service.started) == [bad, *good]
    service.reconcile()


@pytest.mark.parametrize("at_commit", [False, True], ids=["at the row", "at the commit"])
def test_a_claim_slower_than_its_time_is_set_aside_and_the_others_run(service: Service, at_commit: bool) -> None:
    service.start("--slots", "1", env={"TALLY_STATEMENT_SECONDS": "0.4"})
    with fault(service.database, CLAIM, sleeping(4), MARKED, at_commit=at_commit):
        slow = service.accepted(marked=True)
        good = [service.accepted() for _ in range(3)]
        for each in good:
            service.await_state(each, "SUCCEEDED")
        wait_until(lambda: service.dispatcher.saw(f"claim.set_aside task={slow}"), "the slow one is set aside")
        assert service.state(slow) == "QUEUED"
        assert service.database.value("select attempt from tally.task where id = %s", (slow,)) == 0
        assert slow not in service.started

    service.await_state(slow, "SUCCEEDED")
    assert sorted(service.started) == [slow, *good]
    service.reconcile()


def test_a_claim_slower_than_2_seconds_holds_up_the_others_for_its_try_and_no_longer(service: Service) -> None:
    service.start("--slots", "2")
    with fault(service.database, CLAIM, sleeping(30), MARKED):
        slow = service.accepted(marked=True)
        service.dispatcher.wait_for(f"claim.set_aside task={slow} seconds=2 ", 6)

        good = service.accepted()
        wait_until(lambda: service.state(good) == "SUCCEEDED", "another is run at once", 1)

        canceled = service.api.cancel(slow)
        assert (canceled.status, canceled.json()["state"]) == (202, "CANCELED")
    service.await_all()
    assert service.started == [good]
    service.reconcile()


def test_a_fault_of_all_tasks_that_comes_and_goes_fails_none(service: Service) -> None:
    database = service.database
    service.start("--slots", "2")
    over = Event()

    def flicker() -> None:
        connection = database.connect()
        while not over.wait(uniform(0, 0.05)):
            connection.execute("alter function tally.claim_tasks rename to hidden")
            over.wait(uniform(0, 0.05))
            connection.execute("alter function tally.hidden rename to claim_tasks")

    flickering = Thread(target=flicker)
    flickering.start()
    try:
        tasks = [service.accepted() for _ in range(300)]
        over.wait(2)
    finally:
        over.set()
        flickering.join(10)

    service.await_all()
    assert {service.state(task) for task in tasks} == {"SUCCEEDED"}
    service.reconcile()


def test_after_a_lock_on_the_whole_table_all_tasks_are_claimed_at_once(service: Service) -> None:
    database = service.database
    service.start("--slots", "4", env={"TALLY_STATEMENT_SECONDS": "0.2"})
    database.execute("update tally.queue set paused_at = now()")
    tasks = [service.accepted() for _ in range(40)]
    holder = database.connect()
    with holder.transaction():
        holder.execute("lock table tally.task in share mode")
        database.execute("update tally.queue set paused_at = null")
        service.dispatcher.wait_for(f"claim.set_aside task={tasks[7]} ")

    wait_until(lambda: len(service.started) == 40, "all have started", 6, lambda: len(service.started))
    service.await_all()
    service.reconcile()


def test_an_unknown_kind_fails_and_the_rest_of_its_batch_runs(ledger: Ledger, run_dispatcher: RunDispatcher) -> None:
    good = ledger.submit_many("echo", [{}] * 5)
    unknown = ledger.submit("nobody.knows")
    good += ledger.submit_many("echo", [{}] * 5)
    run_dispatcher("--slots", "11")

    states = ledger.await_all()

    assert states == {"SUCCEEDED": 10, "FAILED": 1}
    assert ledger.task(unknown)["error"]["reason"] == "no such kind: nobody.knows"
    ledger.reconcile()
