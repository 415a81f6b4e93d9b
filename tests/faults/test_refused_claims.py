"""A claim is refused, and so is writing that it was: the slot is held, and the write tried until it has an end."""

from itertools import pairwise
from signal import SIGTERM
from statistics import median
from time import monotonic

from tests.support.database import Database
from tests.support.faults import CLAIM, REFUSE, fault, raising, recorded, sleeping, tries
from tests.support.service import Service
from tests.support.waiting import wait_until

MARKED = "new.input ? 'marked'"
REASON = {"reason": "worker could not claim task", "detail": "refused by a trigger"}


def await_tries(database: Database, count: int, seconds: float = 20) -> list[tuple[float, float]]:
    """Wait for so many failed tries of the write, and return when each began and failed."""
    wait_until(lambda: len(tries(database)) >= count, f"it was tried {count} times", seconds, lambda: tries(database))
    return tries(database)


def pauses(found: list[tuple[float, float]]) -> list[float]:
    return [later - failed for (_, failed), (later, _) in pairwise(found)]


def test_the_write_is_tried_every_25_to_250_ms_and_done_once_the_fault_is_over(service: Service) -> None:
    database = service.database
    service.start("--slots", "1")
    with fault(database, CLAIM, raising(), MARKED):
        with fault(database, REFUSE, recorded(database, raising("not even that")), MARKED):
            bad = service.accepted(marked=True)
            between = pauses(await_tries(database, 16))
            assert service.state(bad) == "QUEUED"

        service.await_state(bad, "FAILED")

    assert min(between) >= 0.024
    # The driver of a busy machine may come late now and then, so the longest is judged with some slack.
    assert median(between) <= 0.25
    assert max(between) <= 0.6
    assert service.row(bad) == ("FAILED", None, REASON)
    assert service.started == []
    service.reconcile()


def test_a_try_takes_2_seconds_at_most(service: Service) -> None:
    database = service.database
    service.start("--slots", "1")
    with fault(database, CLAIM, raising(), MARKED):
        with fault(database, REFUSE, recorded(database, sleeping(30)), MARKED):
            bad = service.accepted(marked=True)
            found = await_tries(database, 2)
        service.await_state(bad, "FAILED")

    for began, failed in found:
        assert 1.9 <= failed - began <= 2.3
    assert 0.024 <= pauses(found)[0] <= 0.6
    service.reconcile()


def test_it_holds_one_slot_and_no_more(service: Service) -> None:
    database = service.database
    service.start("--slots", "2")
    with fault(database, CLAIM, raising(), MARKED):
        with fault(database, REFUSE, recorded(database, raising("not even that")), MARKED):
            bad = service.accepted(marked=True)
            await_tries(database, 1)
            first, second = service.accepted("gate"), service.accepted("gate")
            service.await_state(first, "RUNNING")
            await_tries(database, len(tries(database)) + 5)
            assert [service.state(task) for task in (bad, first, second)] == ["QUEUED", "RUNNING", "QUEUED"]

        service.await_state(bad, "FAILED")
        service.await_state(second, "RUNNING")
    service.gate.touch()
    service.await_all()
    assert service.started == [first, second]
    service.reconcile()


def test_it_stops_at_cancel_which_is_not_overwritten(service: Service) -> None:
    database = service.database
    service.start("--slots", "1")
    refused = fault(database, REFUSE, recorded(database, raising("not even that")), MARKED)
    with fault(database, CLAIM, raising(), MARKED), refused:
        bad = service.accepted(marked=True)
        await_tries(database, 3)

        assert service.api.cancel(bad).json()["state"] == "CANCELED"

        good = service.accepted()
        service.await_state(good, "SUCCEEDED")
        tried = len(tries(database))
        canceled = database.rows("select * from tally.task where id = %s", (bad,))
        another = service.accepted()
        service.await_state(another, "SUCCEEDED")
        assert len(tries(database)) == tried

    assert database.rows("select * from tally.task where id = %s", (bad,)) == canceled
    assert service.row(bad) == ("CANCELED", None, {"reason": "canceled", "detail": "not started"})
    assert service.api.cancel(bad).status == 409
    assert service.started == [good, another]
    service.reconcile()


def test_a_try_that_sleeps_does_not_keep_a_cancel_out(service: Service) -> None:
    database = service.database
    service.start("--slots", "1")
    with fault(database, CLAIM, raising(), MARKED), fault(database, REFUSE, recorded(database, sleeping(30)), MARKED):
        bad = service.accepted(marked=True)
        await_tries(database, 1)

        # 503 says that nothing was changed: between two tries there is room.
        wait_until(lambda: service.api.cancel(bad).status == 202, "the cancel is accepted", 15)

        good = service.accepted()
        service.await_state(good, "SUCCEEDED")
    assert service.row(bad)[0] == "CANCELED"
    service.reconcile()


def test_it_stops_at_sigterm_with_the_task_queued_and_exit_status_0(service: Service) -> None:
    database = service.database
    service.start("--slots", "2")
    with fault(database, CLAIM, raising(), MARKED):
        with fault(database, REFUSE, recorded(database, raising("not even that")), MARKED):
            bad = service.accepted(marked=True)
            await_tries(database, 3)

            assert service.dispatcher.stop() == 0

            tried = len(tries(database))
            assert service.state(bad) == "QUEUED"
            assert database.value("select attempt from tally.task") == 0
        service.reconcile(open_tasks=1)

    service.run_dispatcher()
    service.await_state(bad, "SUCCEEDED")
    assert len(tries(database)) == tried
    assert service.started == [bad]
    service.reconcile()


def test_sigterm_does_not_wait_for_more_than_the_try_under_way(service: Service) -> None:
    database = service.database
    service.start("--slots", "4")
    with fault(database, CLAIM, raising(), MARKED), fault(database, REFUSE, recorded(database, sleeping(30)), MARKED):
        bad = [service.accepted(marked=True) for _ in range(4)]
        await_tries(database, 1)
        asked = monotonic()

        service.dispatcher.send(SIGTERM)

        assert service.dispatcher.wait() == 0
        assert monotonic() - asked < 4
        assert [service.state(task) for task in bad] == ["QUEUED"] * 4
    service.reconcile(open_tasks=4)


def test_a_task_that_another_dispatcher_has_failed_meanwhile_is_not_failed_again(service: Service) -> None:
    database = service.database
    service.start("--slots", "1")
    rival = service.run_dispatcher("--slots", "1")
    both = (service.dispatcher, rival)
    with fault(database, CLAIM, raising(), MARKED):
        with fault(database, REFUSE, raising("not even that"), MARKED):
            bad = service.accepted(marked=True)
            for each in both:
                each.wait_for("error=not even that")

        for each in both:
            each.wait_for(f"task.refused task={bad} ")

    verdicts = [each.output.split(f"task.refused task={bad} verdict=")[1].split()[0] for each in both]
    assert sorted(verdicts) == ["late", "written"]
    assert service.row(bad) == ("FAILED", None, REASON)
    service.reconcile()
