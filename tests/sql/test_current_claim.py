"""current_claim: may a claim that has waited be begun?"""

from sql.connect import Connection
from tests.sql.calls import call, claim, finish, register, submit_one, succeeded
from tests.support.database import Database

CURRENT = [(True, True)]


def test_a_claim_is_current_until_it_has_ended(database: Database) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    task = submit_one(connection)
    claim(connection, dispatcher)

    assert call(connection, "current_claim", dispatcher=dispatcher, id=task, attempt=1) == CURRENT
    assert call(connection, "current_claim", dispatcher=dispatcher, id=task, attempt=2) == [(True, False)]
    finish(connection, dispatcher, succeeded(task))
    assert call(connection, "current_claim", dispatcher=dispatcher, id=task, attempt=1) == [(True, False)]


def test_the_answer_is_confirmed_by_the_standbys_like_a_write(database: Database) -> None:
    """A primary that was replaced without knowing it would say that a claim is current for ever."""
    connection = database.connect()
    dispatcher = register(connection)
    task = submit_one(connection)
    claim(connection, dispatcher)

    with connection.transaction():
        assert call(connection, "current_claim", dispatcher=dispatcher, id=task, attempt=1) == CURRENT
        assert has_written(connection)


def has_written(connection: Connection) -> bool:
    row = connection.execute("select pg_current_xact_id_if_assigned() is not null").fetchone()
    return bool(row and row[0])
