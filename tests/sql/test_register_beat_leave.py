"""register_dispatcher, beat_dispatcher and leave_dispatcher: a dispatcher comes, lives and goes."""

from collections.abc import Callable
from uuid import UUID, uuid4

import pytest

from sql.connect import Connection
from sql.errors import Condemned, TasksLeft, translated
from tests.sql.calls import (
    Claimed,
    beat,
    call,
    cancel,
    claim,
    condemn,
    finish,
    leave,
    register,
    starts_waiting,
    submit_one,
    succeeded,
)
from tests.support.database import Database
from tests.support.waiting import wait_until


def test_registering_again_changes_nothing(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    beat(connection, dispatcher)
    before = database.rows("select * from tally.dispatcher")

    register(connection, dispatcher)

    assert database.rows("select * from tally.dispatcher") == before


def test_registering_does_not_bring_a_stopped_dispatcher_back(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    condemn(connection, dispatcher)

    register(connection, dispatcher)

    with pytest.raises(Condemned), translated():
        beat(connection, dispatcher)


def test_every_beat_counts_one_up_and_tells_the_trouble(database: Database) -> None:
    connection = database.connect()
    dispatcher, other = register(connection), register(connection)

    beats = [beat(connection, dispatcher), beat(connection, dispatcher, "no permission")]

    assert beats == [1, 2]
    look = "select beat, trouble, beaten_at >= started_at from tally.dispatcher where id = %s"
    assert database.rows(look, (dispatcher,)) == [(2, "no permission", True)]
    assert database.rows(look, (other,)) == [(0, None, True)]
    beat(connection, dispatcher)
    assert database.rows(look, (dispatcher,)) == [(3, None, True)]


def test_a_beat_that_waits_behind_a_condemnation_is_refused(database: Database) -> None:
    judge = database.connect()
    dispatcher = register(judge)

    def rival(connection: Connection) -> int:
        with translated():
            return beat(connection, dispatcher)

    with judge.transaction():
        condemn(judge, dispatcher)
        late = starts_waiting(database, rival)

    assert isinstance(late.exception(timeout=10), Condemned)
    assert database.value("select beat from tally.dispatcher") == 0


@pytest.mark.parametrize("act", [beat, leave], ids=["beat", "leave"])
def test_a_dispatcher_that_was_condemned_or_is_unknown_is_refused(
    database: Database, act: Callable[[Connection, UUID], object]
) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    condemn(connection, dispatcher)

    for each in (dispatcher, uuid4()):
        with pytest.raises(Condemned), translated():
            act(connection, each)


def test_leaving_ends_the_dispatcher_and_asking_again_changes_nothing(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    beat(connection, dispatcher, "trouble that is over")

    leave(connection, dispatcher)
    before = database.rows("select * from tally.dispatcher")
    leave(connection, dispatcher)

    assert database.rows("select * from tally.dispatcher") == before
    look = "select stopped_why, stopped_at is not null, stopped_proof, trouble from tally.dispatcher"
    assert database.rows(look) == [("left", True, None, None)]
    with pytest.raises(Condemned), translated():
        beat(connection, dispatcher)


def test_a_dispatcher_may_not_leave_a_running_task_behind(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    task = submit_one(connection)
    claim(connection, dispatcher)
    cancel(connection, task)

    with pytest.raises(TasksLeft, match=f"{dispatcher} still holds 1 tasks"), translated():
        leave(connection, dispatcher)

    finish(connection, dispatcher, succeeded(task))
    leave(connection, dispatcher)


def test_leaving_waits_for_a_claim_in_flight_and_is_then_refused(database: Database) -> None:
    claimer = database.connect()
    dispatcher = register(claimer)
    submit_one(claimer)

    def rival(connection: Connection) -> None:
        with translated():
            leave(connection, dispatcher)

    with claimer.transaction():
        claim(claimer, dispatcher)
        late = starts_waiting(database, rival)

    assert isinstance(late.exception(timeout=10), TasksLeft)
    assert database.value("select stopped_at from tally.dispatcher") is None


def test_a_claim_that_waits_behind_the_leaving_is_refused(database: Database) -> None:
    leaver = database.connect()
    dispatcher = register(leaver)
    submit_one(leaver)

    def rival(connection: Connection) -> list[Claimed]:
        with translated():
            return claim(connection, dispatcher)

    with leaver.transaction():
        leave(leaver, dispatcher)
        late = starts_waiting(database, rival)

    assert isinstance(late.exception(timeout=10), Condemned)
    assert database.value("select state from tally.task") == "QUEUED"


def test_the_proof_of_life_is_one_sessions_and_others_see_it(database: Database) -> None:
    first, second = database.connect(), database.connect()
    dispatcher, judge = register(first), register(second)

    def seen_locked() -> bool:
        ((seen, *_, locked),) = call(second, "living_dispatchers", dispatcher=judge)
        assert seen == dispatcher
        return bool(locked)

    assert not seen_locked()
    assert call(first, "lock_dispatcher", dispatcher=dispatcher) == [(True,)]
    assert call(second, "lock_dispatcher", dispatcher=dispatcher) == [(False,)]
    assert call(second, "lock_dispatcher", dispatcher=judge) == [(True,)]
    assert seen_locked()
    first.close()
    wait_until(lambda: not seen_locked(), says="the lock has gone with its session")
