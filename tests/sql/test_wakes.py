"""Who is woken: a submit wakes as many waiting dispatchers as it has tasks, by name; who cannot claim passes it on."""

from uuid import UUID

import pytest

from sql import statement
from sql.connect import Connection
from tests.dispatcher.given import refuse_writes
from tests.sql import calls
from tests.support.database import Database

EVERYBODY = "everybody"


class Ears:
    """A session that hears everybody's channel, and those of the dispatchers it is told of."""

    def __init__(self, database: Database) -> None:
        self._connection = database.connect("ears")
        self._connection.execute("listen tally_work")

    def of(self, *dispatchers: UUID) -> None:
        for dispatcher in dispatchers:
            self._connection.execute(statement("queries/listen"), {"dispatcher": dispatcher})

    def heard(self) -> list[str]:
        """Return who was woken since the last time, sorted."""
        channels = [each.channel for each in self._connection.notifies(timeout=0.2)]
        return sorted(EVERYBODY if name == "tally_work" else name.removeprefix("tally_work:") for name in channels)


@pytest.fixture
def ears(database: Database) -> Ears:
    return Ears(database)


@pytest.fixture
def clerk(database: Database) -> Connection:
    return database.connect("clerk")


def waiting(clerk: Connection, ears: Ears, count: int) -> list[UUID]:
    """Enter dispatchers that have claimed, found nothing and wait; the first has beaten last."""
    dispatchers = [calls.register(clerk) for _ in range(count)]
    for dispatcher in reversed(dispatchers):
        assert calls.claim(clerk, dispatcher) == []
        calls.beat(clerk, dispatcher)
    ears.of(*dispatchers)
    return dispatchers


def waits(database: Database, dispatcher: UUID) -> bool:
    return bool(database.value("select waiting from tally.dispatcher where id = %s", (dispatcher,)))


def names(*dispatchers: UUID) -> list[str]:
    return sorted(map(str, dispatchers))


def test_a_submit_wakes_one_that_waits_the_one_that_has_beaten_last(clerk: Connection, ears: Ears) -> None:
    first, _, third = waiting(clerk, ears, 3)

    calls.submit(clerk)
    assert ears.heard() == names(first)

    calls.beat(clerk, third)
    calls.submit(clerk)
    assert ears.heard() == names(third)


def test_a_batch_wakes_as_many_as_it_has_tasks(clerk: Connection, ears: Ears) -> None:
    dispatchers = waiting(clerk, ears, 4)

    calls.submit(clerk, 3)

    assert ears.heard() == names(*dispatchers[:3])


def test_where_nobody_is_known_to_wait_everybody_is_woken(clerk: Connection, ears: Ears) -> None:
    ears.of(calls.register(clerk))

    calls.submit(clerk, 2)

    assert ears.heard() == [EVERYBODY]


@pytest.mark.parametrize("why", ["stopped", "in trouble", "of another queue", "of an earlier program"])
def test_who_would_not_claim_is_not_woken_by_name(database: Database, clerk: Connection, ears: Ears, why: str) -> None:
    (other,) = waiting(clerk, ears, 1)
    (dispatcher,) = waiting(clerk, ears, 1)
    match why:
        case "stopped":
            calls.leave(clerk, dispatcher)
        case "in trouble":
            calls.beat(clerk, dispatcher, "permission denied")
        case "of another queue":
            database.execute("update tally.dispatcher set queue = 'mail' where id = %s", (dispatcher,))
        case "of an earlier program":
            database.execute("update tally.dispatcher set queue = null where id = %s", (dispatcher,))

    calls.submit(clerk)

    assert ears.heard() == names(other)


def test_a_dispatcher_waits_once_a_claim_has_left_slots_free(database: Database, clerk: Connection) -> None:
    dispatcher = calls.register(clerk)
    assert not waits(database, dispatcher)

    calls.submit(clerk, 3)
    assert len(calls.claim(clerk, dispatcher, 1, free=2)) == 2
    assert not waits(database, dispatcher)

    assert len(calls.claim(clerk, dispatcher, 2, free=2)) == 1
    assert waits(database, dispatcher)


def test_tasks_that_are_tried_alone_say_nothing_of_who_waits(database: Database, clerk: Connection, ears: Ears) -> None:
    dispatcher, _ = waiting(clerk, ears, 2)
    task, _ = calls.submit_all(clerk, 2)
    ears.heard()

    assert len(calls.claim(clerk, dispatcher, 2, free=1, only=[task])) == 1

    assert waits(database, dispatcher)
    assert ears.heard() == []


def test_a_claim_that_leaves_tasks_behind_wakes_others(database: Database, clerk: Connection, ears: Ears) -> None:
    first, second, third = waiting(clerk, ears, 3)
    calls.submit(clerk, 4, notify=False)

    assert len(calls.claim(clerk, first, 2, free=2)) == 2

    assert ears.heard() == names(second, third)
    assert not waits(database, first)


def test_a_task_that_is_attempted_again_at_once_wakes_one_and_one_that_waits_nobody(
    clerk: Connection, ears: Ears
) -> None:
    calls.publish(clerk)
    holder = calls.register(clerk)
    tasks = calls.submit_all(clerk, 3)
    calls.claim(clerk, holder, free=3)
    first, second, _ = waiting(clerk, ears, 3)
    ears.heard()

    calls.retry(clerk, holder, calls.Ended(id=tasks[0], delay=3600))
    assert ears.heard() == []
    calls.retry(clerk, holder, *(calls.Ended(id=task, delay=0) for task in tasks[1:]))
    assert ears.heard() == names(first, second)


def test_tasks_whose_time_has_come_wake_as_many_as_they_are(database: Database, clerk: Connection, ears: Ears) -> None:
    calls.publish(clerk)
    holder = calls.register(clerk)
    tasks = calls.submit_all(clerk, 2)
    calls.claim(clerk, holder, free=2)
    calls.retry(clerk, holder, *(calls.Ended(id=task, delay=0.001) for task in tasks))
    first, second, _ = waiting(clerk, ears, 3)
    ears.heard()
    database.execute("select pg_sleep(0.002)")

    assert calls.release(clerk)[0] == 2
    assert ears.heard() == names(first, second)
    assert calls.release(clerk) == (0, None)
    assert ears.heard() == []


def test_a_task_that_runs_again_after_a_crash_wakes_one_if_it_may_at_once(clerk: Connection, ears: Ears) -> None:
    calls.publish(clerk, on_crash="retry", backoff_first_seconds=0)
    holder = calls.register(clerk)
    task = calls.submit_one(clerk)
    calls.claim(clerk, holder)
    first, _ = waiting(clerk, ears, 2)
    ears.heard()

    assert calls.condemn(clerk, holder) == {task: "QUEUED"}
    assert ears.heard() == names(first)


def test_tasks_that_wait_for_their_time_are_not_left_behind(clerk: Connection, ears: Ears) -> None:
    calls.publish(clerk)
    holder = calls.register(clerk)
    task = calls.submit_one(clerk)
    calls.claim(clerk, holder)
    calls.retry(clerk, holder, calls.Ended(id=task, delay=3600))
    first, _ = waiting(clerk, ears, 2)
    ears.heard()
    calls.submit(clerk, 1, notify=False)

    assert len(calls.claim(clerk, first, 2, free=1)) == 1
    assert ears.heard() == []


def test_a_claim_that_leaves_nothing_behind_wakes_nobody(clerk: Connection, ears: Ears) -> None:
    first, _ = waiting(clerk, ears, 2)
    calls.submit(clerk, 2, notify=False)

    assert len(calls.claim(clerk, first, 2, free=2)) == 2

    assert ears.heard() == []


def test_a_wake_is_passed_on_to_another_that_waits(database: Database, clerk: Connection, ears: Ears) -> None:
    first, second, _ = waiting(clerk, ears, 3)
    calls.submit(clerk)
    assert ears.heard() == names(first)

    calls.call(clerk, "pass_on_wake", dispatcher=first, queue="default")

    assert ears.heard() == names(second)
    assert not waits(database, first)


def test_a_wake_that_nobody_is_known_to_wait_for_is_passed_on_to_everybody(clerk: Connection, ears: Ears) -> None:
    (dispatcher,) = waiting(clerk, ears, 1)
    calls.submit(clerk)
    ears.heard()

    calls.call(clerk, "pass_on_wake", dispatcher=dispatcher, queue="default")

    assert ears.heard() == [EVERYBODY]


def test_a_wake_that_came_too_late_is_not_passed_on(clerk: Connection, ears: Ears) -> None:
    first, second = waiting(clerk, ears, 2)
    calls.submit(clerk)
    calls.claim(clerk, second, 2)
    ears.heard()

    calls.call(clerk, "pass_on_wake", dispatcher=first, queue="default")

    assert ears.heard() == []


def test_a_claim_waits_for_nobody_to_say_that_it_waits(database: Database, clerk: Connection) -> None:
    dispatcher, gate = calls.register(clerk), database.connect("gate")
    calls.submit(clerk)
    refuse_writes(database, "new.state = 'RUNNING'", "perform pg_advisory_xact_lock(4711)")
    gate.execute("select pg_advisory_lock(4711)")
    claiming = calls.starts_waiting(database, lambda rival: calls.claim(rival, dispatcher, 1))
    with clerk.transaction():
        calls.beat(clerk, dispatcher)
        settling = calls.starts_waiting(database, lambda rival: calls.settle(rival, dispatcher, 1))

        gate.execute("select pg_advisory_unlock(4711)")

        # The settlement waits for the claim. A claim that waited for the beat would stand behind the settlement.
        assert len(claiming.result(5)) == 1
        assert not waits(database, dispatcher)
    assert len(settling.result(5)) == 1
    assert calls.claim(clerk, dispatcher, 2) == []
    assert waits(database, dispatcher)
