"""submit_task: one task in the caller's own transaction, from any language."""

from uuid import uuid4

import pytest
from psycopg import errors

from sql.connect import Connection
from sql.errors import KeyTaken, NotFound, RowRefused, translated
from tests.sql.calls import call, cancel, claim, document, publish, register, starts_waiting, submit_all, submit_rows
from tests.sql.test_wakes import Ears, names, waiting
from tests.support.database import Database


def submit_task(
    connection: Connection,
    text: str = '{"n": 1}',
    *,
    kind: str = "echo",
    queue: str | None = None,
    key: str | None = None,
    priority: int = 0,
    notify: bool = True,
) -> int:
    asked = {"kind": kind, "input": text, "queue": queue, "idempotency_key": key}
    with translated():
        ((task,),) = call(connection, "submit_task", **asked, priority=priority, notify=notify)
    return int(task)


@pytest.fixture
def connection(database: Database) -> Connection:
    return database.connect()


def test_it_is_one_call_of_sql(connection: Connection) -> None:
    row = connection.execute("""select tally.submit_task('echo', '{"n": 1}')""").fetchone()
    assert row is not None

    seen = document(connection, row[0])
    assert (seen["kind"], seen["queue"], seen["input"], seen["state"]) == ("echo", "default", {"n": 1}, "QUEUED")
    assert connection.execute("select tally.submit_task('echo', '{}', p_priority => -5)").fetchone() != row


def test_the_task_is_there_exactly_if_the_callers_transaction_commits(database: Database) -> None:
    connection = database.connect()
    database.execute("create table orders (id integer)")

    with connection.transaction():
        connection.execute("insert into orders values (1)")
        task = submit_task(connection)
        assert database.value("select count(*) from tally.task") == 0
    assert document(database.connect(), task)["state"] == "QUEUED"

    with pytest.raises(errors.DivisionByZero), connection.transaction():
        submit_task(connection)
        connection.execute("select 1 / 0")
    assert database.value("select count(*) from tally.task") == 1


def test_the_queue_is_the_one_given_else_the_kinds_else_the_default(connection: Connection) -> None:
    call(connection, "set_max_open", queue="given", max_open=None)
    publish(connection, "mail", queue="mails")

    tasks = [submit_task(connection, kind="mail", queue="given"), submit_task(connection, kind="mail")]
    tasks.append(submit_task(connection, kind="unheard of"))

    assert [document(connection, task)["queue"] for task in tasks] == ["given", "mails", "default"]


def test_a_queue_that_is_not_there_is_not_found(database: Database, connection: Connection) -> None:
    with pytest.raises(NotFound, match="there is no queue named 'nowhere'"):
        submit_task(connection, queue="nowhere")

    assert database.value("select count(*) from tally.task") == 0


def test_a_full_queue_takes_it(database: Database, connection: Connection) -> None:
    database.execute("update tally.queue set max_open = 1")
    submit_all(connection, 1)

    submit_task(connection)

    assert database.value("select tally.open_count('default')") == 2
    assert [row.verdict for row in submit_rows(connection, [uuid4()])] == ["overloaded"]


def test_it_waits_for_no_submit_under_way(database: Database, connection: Connection) -> None:
    web = database.connect()

    with web.transaction():
        submit_all(web, 1)
        submit_task(connection)

    assert database.value("select count(*) from tally.task") == 2


def test_the_lowest_priority_is_claimed_first(connection: Connection) -> None:
    late, soon = submit_task(connection, priority=32766), submit_task(connection, priority=-32768)

    dispatcher = register(connection)
    assert [row.id for row in claim(connection, dispatcher, free=1)] == [soon]
    assert [row.id for row in claim(connection, dispatcher, 2)] == [late]


@pytest.mark.parametrize("priority", [32767, 32768, -32769])
def test_a_priority_that_is_none_is_refused(database: Database, connection: Connection, priority: int) -> None:
    with pytest.raises(RowRefused):
        submit_task(connection, priority=priority)

    assert database.value("select count(*) from tally.task") == 0


@pytest.mark.parametrize(("kind", "text"), [("echo", "[]"), ("", "{}")])
def test_what_a_constraint_refuses_is_refused(connection: Connection, kind: str, text: str) -> None:
    with pytest.raises(RowRefused):
        submit_task(connection, text, kind=kind)


def test_the_same_key_again_is_the_same_task_whatever_became_of_it(database: Database, connection: Connection) -> None:
    task = submit_task(connection, '{"a": 1, "b": 2}', key="k")
    cancel(connection, task)

    assert submit_task(connection, '{"b": 2, "a": 1}', key="k") == task
    assert database.value("select count(*) from tally.task") == 1


def test_a_key_is_one_for_both_ways_to_submit(connection: Connection) -> None:
    (row,) = submit_rows(connection, [uuid4()], ["k"], ['{"n": 1}'])

    assert submit_task(connection, key="k") == row.id


@pytest.mark.parametrize(("kind", "text"), [("echo", '{"n": 2}'), ("noop", '{"n": 1}')])
def test_another_kind_or_input_under_the_key_is_refused(
    database: Database, connection: Connection, kind: str, text: str
) -> None:
    task = submit_task(connection, key="k")

    with pytest.raises(KeyTaken, match=f"belongs to task {task}, ") as caught:
        submit_task(connection, text, kind=kind, key="k")

    assert caught.value.sqlstate == "TL415"
    assert database.value("select count(*) from tally.task") == 1


def test_a_key_that_a_retry_by_hand_has_is_taken(connection: Connection) -> None:
    first = submit_task(connection)
    submit_rows(connection, [uuid4()], ["k"], ['{"n": 1}'], retry_of=[first])

    with pytest.raises(KeyTaken):
        submit_task(connection, key="k")


@pytest.mark.parametrize("ends", ["commits", "rolls back"])
def test_a_key_that_another_transaction_holds_is_waited_for(
    database: Database, connection: Connection, ends: str
) -> None:
    connection.execute("begin")
    task = submit_task(connection, key="k")
    rival = starts_waiting(database, lambda other: submit_task(other, key="k"))

    connection.execute("commit" if ends == "commits" else "rollback")

    assert (rival.result(timeout=10) == task) is (ends == "commits")
    assert database.value("select count(*) from tally.task") == 1


@pytest.mark.parametrize("key", [None, "k"])
def test_a_trigger_that_leaves_the_row_out_is_told(database: Database, connection: Connection, key: str | None) -> None:
    database.execute("create function skip() returns trigger language plpgsql as $$begin return null; end$$")
    database.execute("create trigger skip before insert on tally.task for each row execute function skip()")

    with pytest.raises(RowRefused, match="a trigger of the database left the row out"):
        submit_task(connection, key=key)


def test_it_wakes_one_dispatcher_unless_told_not_to(database: Database, connection: Connection) -> None:
    ears = Ears(database)
    first, _ = waiting(connection, ears, 2)

    with connection.transaction():
        submit_task(connection)
        assert ears.heard() == []
    assert ears.heard() == names(first)

    submit_task(connection, notify=False)
    assert ears.heard() == []
