"""A terminal write that is delayed, refused or locked out: its slot is held, and the truth is written in the end."""

from signal import SIGTERM
from time import monotonic

import pytest

from tests.support.database import role_of_its_own
from tests.support.faults import FINISH, fault, raising, recorded, sleeping, tries
from tests.support.service import Service
from tests.support.waiting import wait_until

MARKED = "new.input ? 'marked'"


def others_are_written(service: Service, count: int, seconds: float) -> None:
    """Run so many tasks, one after the other; each has its end in the row within so many seconds of being accepted."""
    for _ in range(count):
        task = service.accepted()
        wait_until(lambda task=task: service.state(task) == "SUCCEEDED", f"task {task} is written", seconds)  # type: ignore[misc]


def while_the_row_is_locked(service: Service, seconds: float) -> None:
    """Lock the row of a running task, let its body end, hold the lock so long; others go on, and then it is written."""
    service.start("--slots", "2")
    stuck = service.accepted("gate")
    service.await_state(stuck, "RUNNING")
    holder = service.database.connect("holder")
    with holder.transaction():
        holder.execute("select from tally.task where id = %s for update", (stuck,))
        service.gate.touch()
        service.dispatcher.wait_for(f"somebody holds the row of task {stuck}")
        end = monotonic() + seconds
        # One more than there are slots: with the stuck one's held, they go through the other.
        others_are_written(service, 5, 2)
        while monotonic() < end:
            others_are_written(service, 1, 2)
            holder.execute("select pg_sleep(0.2)")
        assert service.state(stuck) == "RUNNING"

    wait_until(lambda: service.state(stuck) == "SUCCEEDED", "it is written once the lock is gone", 1)
    assert service.row(stuck) == ("SUCCEEDED", {"canceled": False}, None)
    assert service.started.count(stuck) == 1
    assert service.dispatcher.stop() == 0
    service.reconcile()


def test_a_locked_row_holds_its_slot_and_no_other_outcome(service: Service) -> None:
    while_the_row_is_locked(service, 0.5)


@pytest.mark.long
@pytest.mark.parametrize("seconds", [10, 180])
def test_a_row_locked_for_long_holds_its_slot_and_no_other_outcome(service: Service, seconds: float) -> None:
    while_the_row_is_locked(service, seconds)


def test_with_one_slot_nothing_is_claimed_until_the_outcome_is_written(service: Service) -> None:
    service.start("--slots", "1")
    first = service.accepted("gate")
    service.await_state(first, "RUNNING")
    holder = service.database.connect("holder")
    with holder.transaction():
        holder.execute("select from tally.task where id = %s for update", (first,))
        second = service.accepted()
        service.gate.touch()
        service.dispatcher.wait_for(f"somebody holds the row of task {first}")
        assert (service.state(first), service.state(second)) == ("RUNNING", "QUEUED")

    service.await_state(second, "SUCCEEDED")
    assert service.row(first)[0] == "SUCCEEDED"
    assert service.started == [first, second]
    service.reconcile()


def test_a_drain_waits_for_an_outcome_that_is_locked_out(service: Service) -> None:
    service.start("--slots", "1")
    task = service.accepted("gate")
    service.await_state(task, "RUNNING")
    holder = service.database.connect("holder")
    with holder.transaction():
        holder.execute("select from tally.task where id = %s for update", (task,))
        service.gate.touch()
        service.dispatcher.wait_for(f"somebody holds the row of task {task}")
        service.dispatcher.send(SIGTERM)
        service.dispatcher.wait_for("dispatcher.draining")
        assert service.dispatcher.running

    assert service.dispatcher.wait() == 0
    assert service.row(task)[0] == "SUCCEEDED"
    service.reconcile()


@pytest.mark.parametrize("at_commit", [False, True], ids=["at the row", "at the commit"])
def test_a_write_slower_than_its_time_is_tried_on_while_the_others_are_written(
    service: Service, at_commit: bool
) -> None:
    service.start("--slots", "4", env={"TALLY_STATEMENT_SECONDS": "0.4"})
    with fault(service.database, FINISH, sleeping(6), MARKED, at_commit=at_commit):
        slow = service.accepted(marked=True)
        # What ends beside it waits for its first try, and for no other: at the commit the driver's clock ends that.
        others_are_written(service, 1, 2)
        others_are_written(service, 20, 0.4)
        assert service.row(slow) == ("RUNNING", None, None)

    service.await_state(slow, "SUCCEEDED")
    assert service.started.count(slow) == 1
    service.reconcile()


def test_a_write_slower_than_2_seconds_is_tried_for_2_seconds_each_and_holds_its_slot(service: Service) -> None:
    database = service.database
    service.start("--slots", "2")
    with fault(database, FINISH, recorded(database, sleeping(30)), MARKED):
        slow = service.accepted("echo", marked=True, say="the truth")
        wait_until(lambda: len(tries(database)) >= 1, "the first lane has tried")
        first, second = service.accepted("gate"), service.accepted("gate")
        service.await_state(first, "RUNNING")
        wait_until(lambda: len(tries(database)) >= 2, "the second lane has tried")
        assert [service.state(task) for task in (slow, first, second)] == ["RUNNING", "RUNNING", "QUEUED"]
        service.gate.touch()
        for task in (first, second):
            wait_until(lambda task=task: service.state(task) == "SUCCEEDED", f"task {task} is written", 1)  # type: ignore[misc]

    (_, first_failed), (second_began, _) = tries(database)[:2]
    assert 0.024 <= second_began - first_failed <= 0.6
    for began, failed in tries(database)[:2]:
        assert 1.9 <= failed - began <= 2.3
    service.await_state(slow, "SUCCEEDED")
    assert service.row(slow)[1]["say"] == "the truth"
    service.reconcile()


# A trigger's own; a lock, a privilege: the world's or the installation's fault, if every row met it.
@pytest.mark.parametrize("code", ["P0001", "55P03", "42501"])
def test_an_error_that_nobody_listed_delays_one_outcome_only(service: Service, code: str) -> None:
    service.start("--slots", "4")
    with fault(service.database, FINISH, raising("no", code), MARKED):
        bad = service.accepted(marked=True)
        others_are_written(service, 30, 1)
        wait_until(lambda: service.dispatcher.saw("error=no"), "the write was refused alone")
        assert service.row(bad) == ("RUNNING", None, None)

    wait_until(lambda: service.state(bad) == "SUCCEEDED", "it is written once it can be", 1)
    assert service.row(bad)[1]["marked"] is True
    assert service.dispatcher.stop() == 0
    service.reconcile()


@pytest.mark.parametrize("privilege", ["update on tally.task", "execute on function tally.finish_tasks"])
def test_outcomes_wait_for_a_privilege_that_was_revoked_for_a_while(service: Service, privilege: str) -> None:
    with role_of_its_own(service.database) as role:
        url = service.database.url.replace("postgres@", f"{role}@")
        assert url != service.database.url
        service.web = service.run_program("falcon_app")
        service.dispatcher = service.run_dispatcher("--slots", "2", env={"DATABASE_URL": url})
        tasks = [service.accepted("gate") for _ in range(3)]
        for task in tasks[:2]:
            service.await_state(task, "RUNNING")
        service.database.execute(f"revoke {privilege} from {role}")
        service.gate.touch()
        service.dispatcher.wait_for("permission denied")
        wait_until(lambda: "2 outcomes cannot be written" in trouble(service), "it is said", 5)
        assert [service.state(task) for task in tasks] == ["RUNNING", "RUNNING", "QUEUED"]

        service.database.execute(f"grant {privilege} to {role}")

        service.await_all()
        assert [service.row(task)[0] for task in tasks] == ["SUCCEEDED"] * 3
        assert service.dispatcher.stop() == 0
        assert sorted(service.started) == tasks
    service.reconcile()


def trouble(service: Service) -> str:
    return str(service.database.value("select trouble from tally.dispatcher"))
