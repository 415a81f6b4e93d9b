"""settle_submissions: what became of a transaction whose COMMIT was not answered."""

from uuid import UUID, uuid4

from sql.connect import Connection
from tests.sql.calls import call, starts_waiting, submit_rows
from tests.support.database import Database


def settle(connection: Connection, ids: list[int | None], tokens: list[UUID | None]) -> list[int]:
    return sorted(task for (task,) in call(connection, "settle_submissions", queue="default", ids=ids, tokens=tokens))


def test_what_was_committed_is_there(database: Database) -> None:
    connection = database.connect()
    rows = submit_rows(connection, [uuid4() for _ in range(3)])

    assert settle(connection, [row.id for row in rows], [row.row_token for row in rows]) == [1, 2, 3]


def test_an_id_that_was_handed_out_again_is_not_the_task(database: Database) -> None:
    connection = database.connect()
    (stranger,) = submit_rows(connection, [uuid4()])

    assert settle(connection, [stranger.id], [uuid4()]) == []


def test_it_waits_for_the_first_transaction_to_end(database: Database) -> None:
    first = database.connect()

    with first.transaction():
        (row,) = submit_rows(first, [uuid4()])
        settled = starts_waiting(database, lambda connection: settle(connection, [row.id], [row.row_token]))

    assert settled.result(10) == [row.id]


def test_what_was_rolled_back_is_not_there(database: Database) -> None:
    first = database.connect()

    with first.transaction(force_rollback=True):
        (row,) = submit_rows(first, [uuid4()])
        settled = starts_waiting(database, lambda connection: settle(connection, [row.id], [row.row_token]))

    assert settled.result(10) == []


def test_it_writes_to_the_log_so_that_standbys_confirm_it_too(database: Database) -> None:
    connection = database.connect()

    with connection.transaction():
        settle(connection, [], [])

        assert connection.execute("select pg_current_xact_id_if_assigned() is not null").fetchone() == (True,)
