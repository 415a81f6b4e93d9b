"""Submitting from Python: what becomes of a task that is submitted in a transaction of its own, or in the caller's."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import monotonic
from typing import Any

import msgspec
import psycopg
import pytest
import sqlalchemy
from psycopg.rows import class_row, dict_row, namedtuple_row, scalar_row

from dispatcher import BadInput, submitting
from sql.errors import DatabaseAway, DatabaseBusy, KeyTaken, NotFound, OutcomeUnknown, RowRefused
from sql.settings import BadSettings
from tests.dispatcher.given import a_task
from tests.support.database import Database, holding
from tests.support.faults import AT_COMMIT, insert_fault
from tests.support.program import ROOT
from tests.support.proxy import Proxy
from tests.support.waiting import wait_until

GATE_KEY = 4711
AT_GATE = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
SESSIONS = "select count(*) from pg_stat_activity where application_name = 'pgtally-submit'"


class Report(msgspec.Struct):
    month: int
    bad: bool | msgspec.UnsetType = msgspec.UNSET


def of_report(input: Report) -> object:  # noqa: A002
    return input.month


BUILD = a_task("report.build", of_report)
SEND = a_task("mail.send", lambda _input: None, queue="mails")

Environment = Callable[..., None]


@pytest.fixture
def environment(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Environment]:
    """Let this process submit to the test's database; called, with other settings."""
    for name in os.environ:
        if name.startswith("TALLY_"):
            monkeypatch.delenv(name)

    def settings(**environ: str) -> None:
        submitting.close()
        for name, value in environ.items():
            monkeypatch.setenv(name, value)

    settings(DATABASE_URL=database.url)
    yield settings
    submitting.close()


def tasks(database: Database) -> list[tuple[Any, ...]]:
    return database.rows("select id, kind, input, queue, priority, idempotency_key from tally.task order by id")


@contextmanager
def gate_at_commit(database: Database) -> Iterator[psycopg.Connection]:
    """While inside, a COMMIT of a task whose input has `bad` waits until the connection that is yielded lets go."""
    holder = database.connect("test-holder")
    holder.execute("select pg_advisory_lock(%s)", (GATE_KEY,))
    with insert_fault(database, AT_COMMIT, f"perform pg_advisory_xact_lock({GATE_KEY})"):
        yield holder
        holder.execute("select pg_advisory_unlock_all()")


# A transaction of its own.


def test_what_is_submitted_is_committed(environment: Environment, database: Database) -> None:
    first = BUILD.submit(Report(3))
    second = BUILD.submit({"month": 4}, idempotency_key="march", queue="default", priority=-5)

    assert tasks(database) == [
        (first, "report.build", {"month": 3}, "default", 0, None),
        (second, "report.build", {"month": 4}, "default", -5, "march"),
    ]


def test_the_queue_is_the_declared_one_unless_another_is_given(environment: Environment, database: Database) -> None:
    database.execute("insert into tally.queue (name) values ('mails'), ('slow')")

    SEND.submit({})
    SEND.submit({}, queue="slow")

    assert [queue for _, _, _, queue, _, _ in tasks(database)] == ["mails", "slow"]


@pytest.mark.parametrize("value", [{"month": "May"}, {}, {"month": 1.5}, [3], "3", Report("May")])  # type: ignore[arg-type]
def test_an_input_that_does_not_fit_makes_no_row(environment: Environment, database: Database, value: object) -> None:
    with pytest.raises(BadInput):
        BUILD.submit(value)
    with pytest.raises(BadInput):
        BUILD.submit_in(database.connect(), value)

    assert tasks(database) == []


def test_an_input_larger_than_the_settings_say_is_refused(environment: Environment) -> None:
    environment(TALLY_MAX_BODY_BYTES="100", TALLY_MAX_DEPTH="2")

    with pytest.raises(BadInput, match="more than 100 bytes"):
        SEND.submit({"text": "x" * 100})
    with pytest.raises(BadInput, match="nested more than 2 deep"):
        SEND.submit({"a": [[]]})


def test_the_same_key_again_is_the_same_task(environment: Environment, database: Database) -> None:
    first = BUILD.submit({"month": 3}, idempotency_key="march")

    assert BUILD.submit(Report(3), idempotency_key="march") == first
    with pytest.raises(KeyTaken, match=f"task {first}"):
        BUILD.submit(Report(4), idempotency_key="march")
    assert len(tasks(database)) == 1


def test_what_the_database_refuses_is_told_and_the_session_goes_on(
    environment: Environment, database: Database
) -> None:
    with pytest.raises(NotFound, match="no queue named 'mails'"):
        SEND.submit({})
    with pytest.raises(RowRefused):
        BUILD.submit(Report(3), priority=40_000)

    BUILD.submit(Report(3))

    assert len(tasks(database)) == 1
    assert database.value(SESSIONS) == 1


def test_threads_share_a_few_sessions(environment: Environment, database: Database) -> None:
    with ThreadPoolExecutor(16) as pool:
        made = list(pool.map(lambda month: BUILD.submit(Report(month)), range(200)))

    assert len(set(made)) == 200
    assert database.value("select count(*) from tally.task") == 200
    assert 1 <= database.value(SESSIONS) <= submitting.MOST_SESSIONS


def test_sessions_are_closed_when_asked_and_opened_again_when_needed(
    environment: Environment, database: Database
) -> None:
    BUILD.submit(Report(3))

    submitting.close()

    wait_until(lambda: database.value(SESSIONS) == 0, "the session is gone")
    BUILD.submit(Report(3))
    assert database.value(SESSIONS) == 1


def test_sessions_that_were_lost_while_nobody_used_them_are_replaced_without_a_word(
    environment: Environment, database: Database
) -> None:
    with ThreadPoolExecutor(4) as pool, holding(database, "lock table tally.task"):
        made = [pool.submit(BUILD.submit, Report(3)) for _ in range(4)]
        wait_until(lambda: database.value(f"{SESSIONS} and wait_event_type = 'Lock'") == 4, "four sessions are busy")
    assert len({each.result() for each in made}) == 4
    database.execute(SESSIONS.replace("count(*)", "pg_terminate_backend(pid, 5000)"))

    BUILD.submit(Report(3))

    assert database.value("select count(*) from tally.task") == 5
    assert database.value(SESSIONS) == 1


def test_a_database_that_is_not_there_makes_no_row_and_is_told_in_time(
    environment: Environment, database: Database, proxy: Callable[[str, int], Proxy]
) -> None:
    way = proxy("127.0.0.1", database.server.port)
    environment(DATABASE_URL=way.url_for(database.url), TALLY_REQUEST_SECONDS="1")
    BUILD.submit(Report(3))
    way.cut()
    way.refuse()
    began = monotonic()

    with pytest.raises(DatabaseAway):
        BUILD.submit(Report(3), idempotency_key="march")

    assert monotonic() - began < 5
    way.accept()
    BUILD.submit(Report(3))
    assert len(tasks(database)) == 2


def test_a_database_that_does_not_answer_ends_at_the_deadline(
    environment: Environment, database: Database, proxy: Callable[[str, int], Proxy]
) -> None:
    way = proxy("127.0.0.1", database.server.port)
    environment(DATABASE_URL=way.url_for(database.url), TALLY_REQUEST_SECONDS="1")
    BUILD.submit(Report(3))
    way.freeze()
    began = monotonic()

    with pytest.raises(DatabaseAway):
        BUILD.submit(Report(3))

    assert monotonic() - began < 5
    way.thaw()


def test_a_row_that_is_locked_for_longer_ends_at_the_deadline_without_a_row(
    environment: Environment, database: Database
) -> None:
    environment(TALLY_REQUEST_SECONDS="0.7")

    with holding(database, "lock table tally.task"), pytest.raises(DatabaseBusy):
        BUILD.submit(Report(3))

    assert tasks(database) == []


@pytest.mark.parametrize("key", [None, "march"])
def test_a_lost_reply_to_commit_is_unknown_unless_a_key_lets_it_be_asked_again(
    environment: Environment, database: Database, proxy: Callable[[str, int], Proxy], key: str | None
) -> None:
    way = proxy("127.0.0.1", database.server.port)
    environment(DATABASE_URL=way.url_for(database.url))
    with ThreadPoolExecutor(1) as pool:
        with gate_at_commit(database):
            submitted = pool.submit(BUILD.submit, Report(3, bad=True), idempotency_key=key)
            wait_until(lambda: database.value(AT_GATE) == 1, "COMMIT is under way")
            way.mute_open()
        (row,) = wait_until(lambda: tasks(database), "the row is committed")
        way.cut()

        if key is None:
            with pytest.raises(OutcomeUnknown):
                submitted.result(10)
        else:
            assert submitted.result(10) == row[0]

    assert tasks(database) == [row]


def test_a_commit_that_did_not_happen_is_made_again_under_its_key(environment: Environment, database: Database) -> None:
    with ThreadPoolExecutor(1) as pool, gate_at_commit(database) as gate:
        submitted = pool.submit(BUILD.submit, Report(3, bad=True), idempotency_key="march")
        wait_until(lambda: database.value(AT_GATE) == 1, "COMMIT is under way")
        database.execute(SESSIONS.replace("count(*)", "pg_terminate_backend(pid, 5000)"))
        gate.execute("select pg_advisory_unlock_all()")

        made = submitted.result(10)

    assert [row[0] for row in tasks(database)] == [made]


def test_what_cannot_be_found_out_by_the_deadline_stays_unknown(environment: Environment, database: Database) -> None:
    environment(TALLY_REQUEST_SECONDS="1")
    with ThreadPoolExecutor(1) as pool, gate_at_commit(database):
        submitted = pool.submit(BUILD.submit, Report(3, bad=True), idempotency_key="march")
        wait_until(lambda: database.value(AT_GATE) == 1, "COMMIT is under way")
        database.execute(SESSIONS.replace("count(*)", "pg_terminate_backend(pid, 5000)"))

        with pytest.raises(OutcomeUnknown):
            submitted.result(10)


FORKING = """
import os, sys
from dispatcher import task

@task("report.build")
def build(input): ...

def said(name):
    print(name, build.submit({"from": name}), flush=True)

said("before")
child = os.fork()
if child == 0:
    said("child")
    grandchild = os.fork()
    if grandchild == 0:
        said("grandchild")
        sys.exit(0)
    os.waitpid(grandchild, 0)
    said("child again")
    sys.exit(0)
os.waitpid(child, 0)
said("parent")
"""


def test_a_process_that_was_forked_submits_over_sessions_of_its_own(database: Database) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TALLY_")}
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORKING],
        cwd=ROOT,
        env={**environ, "DATABASE_URL": database.url},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert (ran.returncode, ran.stderr) == (0, "")
    made = dict(line.rsplit(" ", 1) for line in ran.stdout.splitlines())
    assert {str(task): value["from"] for task, _, value, *_ in tasks(database)} == {
        task: name for name, task in made.items()
    }
    assert set(made) == {"before", "child", "grandchild", "child again", "parent"}


def test_an_environment_that_is_wrong_is_told(environment: Environment) -> None:
    environment(TALLY_NO_SUCH="1")

    with pytest.raises(BadSettings, match="TALLY_NO_SUCH"):
        BUILD.submit(Report(3))


# The caller's own transaction.


def test_a_task_is_there_exactly_if_the_callers_transaction_commits(database: Database) -> None:
    with psycopg.connect(database.url) as connection:
        made = BUILD.submit_in(connection, Report(3))
        assert tasks(database) == []
        connection.commit()
        assert [row[0] for row in tasks(database)] == [made]

        BUILD.submit_in(connection, Report(4))
        connection.rollback()

    assert [row[0] for row in tasks(database)] == [made]


class Row:
    def __init__(self, **columns: Any) -> None:
        self.columns = columns


@pytest.mark.parametrize("row_factory", [dict_row, namedtuple_row, scalar_row, class_row(Row)])
def test_any_connection_or_cursor_will_do_whatever_its_rows_are(database: Database, row_factory: Any) -> None:
    with psycopg.connect(database.url, row_factory=row_factory) as connection:
        made = [BUILD.submit_in(connection, Report(1))]
        connection.cursor_factory = psycopg.ClientCursor
        made.append(BUILD.submit_in(connection, Report(2)))
        for cursor in (connection.cursor(), psycopg.RawCursor(connection), connection.cursor("named")):
            with cursor:
                made.append(BUILD.submit_in(cursor, Report(3)))
        with connection.pipeline():
            made.append(BUILD.submit_in(connection, Report(4)))

    assert [row[0] for row in tasks(database)] == made


def test_what_the_database_refuses_leaves_a_savepoint_to_go_on_from(database: Database) -> None:
    with psycopg.connect(database.url) as connection:
        with pytest.raises(NotFound), connection.transaction():
            SEND.submit_in(connection, {})
        made = BUILD.submit_in(connection, Report(3))

    assert [row[0] for row in tasks(database)] == [made]


def test_sqlalchemys_transaction_is_joined_through_its_driver_connection(database: Database) -> None:
    engine = sqlalchemy.create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(database.url), poolclass=sqlalchemy.NullPool
    )
    with engine.begin() as connection:
        made = BUILD.submit_in(connection.connection.driver_connection, Report(3))
        assert tasks(database) == []
    with pytest.raises(ZeroDivisionError), engine.begin() as connection:
        BUILD.submit_in(connection.connection.driver_connection, Report(4))
        raise ZeroDivisionError

    assert [row[0] for row in tasks(database)] == [made]
    with engine.connect() as connection, pytest.raises(TypeError, match=r"got sqlalchemy\.engine\.base\.Connection"):
        BUILD.submit_in(connection, Report(5))


@pytest.mark.parametrize("given", [None, "postgresql://", object(), psycopg.AsyncConnection])
def test_anything_else_is_told_what_was_expected(given: object) -> None:
    with pytest.raises(TypeError, match=r"expected a psycopg Connection or Cursor \(of SQLAlchemy: .*\), got "):
        BUILD.submit_in(given, Report(3))
