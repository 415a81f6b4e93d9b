"""A full queue, and cancels of what is queued, running and finished."""

from collections.abc import Iterator
from contextlib import contextmanager
from signal import SIGTERM

from tests.support.database import Database
from tests.support.faults import CLAIM, fault
from tests.support.service import Service
from tests.support.waiting import wait_until

GATE_KEY = 4711


@contextmanager
def claims_held(database: Database) -> Iterator[None]:
    """Delay every claim, inside its transaction, until the end."""
    with fault(database, CLAIM, f"perform pg_advisory_xact_lock_shared({GATE_KEY})"):
        holder = database.connect("test-holder")
        holder.execute("select pg_advisory_lock(%s)", (GATE_KEY,))
        yield
        holder.execute("select pg_advisory_unlock(%s)", (GATE_KEY,))
        wait_until(lambda: not waits(database), "no claim waits")


def waits(database: Database) -> int:
    return int(database.value("select count(*) from pg_locks where locktype = 'advisory' and not granted"))


def test_a_delayed_claim_counts_as_open_and_what_waits_behind_it_is_canceled_once(service: Service) -> None:
    # One slot and room for one more; a claim may take longer than it is held here.
    service.database.execute("update tally.queue set max_open = 2")
    service.start("--slots", "1", env={"TALLY_STATEMENT_SECONDS": "10"})
    with claims_held(service.database):
        first = service.submit_text("the first")
        wait_until(lambda: waits(service.database), "the claim is delayed")

        second, third = service.submit_text("the second"), service.submit_text("the third")

        assert [entry.status for entry in (first, second, third)] == [202, 202, 503]
        assert third.code == "overloaded"
        texts = service.database.rows("select input ->> 'text' from tally.task order by id")
        assert texts == [("the first",), ("the second",)]
        assert first.task is not None
        assert second.task is not None
        once, again = service.api.cancel(second.task), service.api.cancel(second.task)
        assert (once.status, once.json()["state"]) == (202, "CANCELED")
        assert (again.status, again.json()["code"]) == (409, "already-terminal")
        assert service.submit_text("the fourth").status == 202, "a canceled task makes room"

    service.await_all()
    assert service.statistics(second.task) == ("CANCELED", 0, 0, 0, False)
    assert service.api.task(second.task)["error"] == {"reason": "canceled", "detail": "not started"}
    assert service.api.task(second.task)["attempt"] == 0
    assert service.statistics(first.task) == ("SUCCEEDED", 2, 9, 9, False)
    assert service.api.cancel(first.task).status == 409
    assert service.statistics(first.task) == ("SUCCEEDED", 2, 9, 9, False)
    service.reconcile()


def test_a_running_task_that_is_canceled_ends_when_its_body_does_and_a_stop_waits_for_that(service: Service) -> None:
    service.start("--slots", "1")
    task = service.accepted("gate")
    service.await_state(task, "RUNNING")

    asked = service.api.cancel(task)
    service.dispatcher.send(SIGTERM)
    service.dispatcher.wait_for("dispatcher.draining")

    assert (asked.status, asked.json()["state"], asked.json()["cancel_requested"]) == (202, "RUNNING", True)
    assert service.api.cancel(task).status == 202, "asked again, answered alike"
    canceled = "select state, cancel_requested_at is not null, result from tally.task"
    assert service.database.rows(canceled) == [("RUNNING", True, None)]
    assert service.dispatcher.running
    service.gate.touch()
    assert service.dispatcher.wait() == 0
    assert service.database.rows(canceled) == [("CANCELED", True, None)]
    assert service.row(task) == ("CANCELED", None, {"reason": "canceled", "detail": "returned"})
    assert service.api.cancel(task).status == 409
    assert service.started == [task]
    service.reconcile()
