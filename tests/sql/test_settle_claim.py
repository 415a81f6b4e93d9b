"""settle_claim: what a claim took whose reply was lost, and no later claim of that number."""

from uuid import uuid4

import pytest

from sql.connect import Connection
from sql.errors import ClaimFenced, Condemned, translated
from tests.sql.calls import (
    Claimed,
    claim,
    condemn,
    document,
    finish,
    register,
    settle,
    starts_waiting,
    submit_all,
    submit_one,
    succeeded,
)
from tests.support.database import Database


def test_a_settlement_returns_exactly_the_rows_of_that_claim(database: Database) -> None:
    connection = database.connect()
    dispatcher, other = register(connection), register(connection)
    submit_all(connection, 4)
    claim(connection, other, 2, free=1)
    claim(connection, dispatcher, 1, free=1)
    lost = claim(connection, dispatcher, 2, free=2)

    assert settle(connection, dispatcher, 2) == lost
    assert settle(connection, dispatcher, 2) == lost
    assert settle(connection, dispatcher, 3) == []


def test_a_settlement_leaves_out_what_has_ended(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    first, second = submit_all(connection, 2)
    claim(connection, dispatcher)
    finish(connection, dispatcher, succeeded(first))

    assert [row.id for row in settle(connection, dispatcher)] == [second]


def test_a_settlement_waits_for_the_claim_in_flight_and_returns_its_rows(database: Database) -> None:
    claimer = database.connect()
    dispatcher = register(claimer)
    submit_all(claimer, 3)

    with claimer.transaction():
        taken = claim(claimer, dispatcher, 4, free=2)
        settlement = starts_waiting(database, lambda connection: settle(connection, dispatcher, 4))

    assert settlement.result(timeout=10) == taken


def test_a_settlement_returns_nothing_of_a_claim_in_flight_that_was_rolled_back(database: Database) -> None:
    claimer = database.connect()
    dispatcher = register(claimer)
    task = submit_one(claimer)

    with claimer.transaction(force_rollback=True):
        claim(claimer, dispatcher, 4)
        settlement = starts_waiting(database, lambda connection: settle(connection, dispatcher, 4))

    assert settlement.result(timeout=10) == []
    assert document(claimer, task)["state"] == "QUEUED"


def test_a_claim_that_waits_behind_its_settlement_is_refused(database: Database) -> None:
    settler = database.connect()
    dispatcher = register(settler)
    task = submit_one(settler)

    def rival(connection: Connection) -> list[Claimed]:
        with translated():
            return claim(connection, dispatcher, 4)

    with settler.transaction():
        assert settle(settler, dispatcher, 4) == []
        late = starts_waiting(database, rival)

    assert isinstance(late.exception(timeout=10), ClaimFenced)
    assert document(settler, task)["state"] == "QUEUED"


def test_the_fence_never_sinks(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)

    settle(connection, dispatcher, 9)
    settle(connection, dispatcher, 3)

    assert database.value("select claim_fence from tally.dispatcher") == 9


def test_a_dispatcher_that_is_stopped_or_unknown_settles_nothing(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    condemn(connection, dispatcher)

    for each in (dispatcher, uuid4()):
        with pytest.raises(Condemned), translated():
            settle(connection, each)
