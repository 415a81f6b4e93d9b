"""`python -m sql migrate`, and its neighbours `queue` and `status`, as processes; and what migrations refuse."""

from collections.abc import Callable, Iterator

import pytest

from sql import migrate as migrations
from sql.migrate import SchemaTooNew, UnfitServer, latest_version, migrate, schema_version
from tests.sql.calls import Ended, call, claim, publish, register, retry, submit_all
from tests.support.database import Database
from tests.support.program import RunProgram
from tests.support.server import TestServer

SCHEMA = """
select 'column', attrelid::regclass::text, attname, format_type(atttypid, atttypmod), attnotnull::text
from pg_attribute join pg_class on pg_class.oid = attrelid
where relnamespace = 'tally'::regnamespace and attnum > 0
union all
select 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid), ''
from pg_constraint where connamespace = 'tally'::regnamespace
union all
select 'index', tablename, indexname, indexdef, '' from pg_indexes where schemaname = 'tally'
union all
select 'view', viewname, definition, '', '' from pg_views where schemaname = 'tally'
union all
select 'function', proname, pg_get_functiondef(oid), proacl::text, '' from pg_proc
where pronamespace = 'tally'::regnamespace
order by 1, 2, 3, 4
"""

STRONGLY_LOCKED = """
select distinct relation::regclass::text
from pg_locks join pg_class on pg_class.oid = relation
where pid = pg_backend_pid() and relation = any (%s) and relkind = 'r'
    and mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
"""

Empty = Callable[..., Database]


@pytest.fixture
def empty(server: TestServer) -> Iterator[Empty]:
    """Make empty databases; dropped at the end."""
    made: list[Database] = []

    def make(options: str = "") -> Database:
        database = Database(server, f"tally_empty_{len(made)}")
        server.value(f"create database {database.name} {options}")
        made.append(database)
        return database

    server.bring_up()
    yield make
    for database in made:
        database.connections.close()
        server.value(f"drop database {database.name} with (force)")


def test_eight_migrations_at_once_all_succeed_and_make_one_schema(
    database: Database, empty: Empty, run_program: RunProgram
) -> None:
    expected = database.rows(SCHEMA)
    names = [path.name.removesuffix(".sql") for path in migrations._migrations()]

    for _ in range(2):
        target = empty()
        environment = {"DATABASE_URL": target.url}
        rivals = [run_program("sql", "migrate", env=environment, ready=False) for _ in range(8)]

        assert [(rival.wait(), "Traceback" in rival.output) for rival in rivals] == [(0, False)] * 8
        assert target.rows(SCHEMA) == expected
        assert [name for (name,) in target.rows("select name from tally.migration order by version")] == names
        assert sum(rival.output.count("migration.applied") for rival in rivals) == len(names)


def test_migrating_again_changes_nothing_but_puts_the_functions_back(database: Database) -> None:
    before = database.rows(SCHEMA)
    database.execute(
        "create or replace function tally.open_count(p_queue text) returns bigint language sql as 'select 0'"
    )
    database.execute("grant execute on function tally.open_count to public")

    assert migrate(database.connect()) == 0
    assert database.rows(SCHEMA) == before


def test_migrations_keep_what_is_in_the_tables(database: Database) -> None:
    connection = database.connect()
    submit_all(connection, 3)
    call(connection, "set_max_open", queue="default", max_open=7)

    migrate(connection)

    assert database.value("select count(*) from tally.task") == 3
    assert database.value("select max_open from tally.queue") == 7


def test_an_empty_database_is_at_version_0_and_a_migrated_one_at_the_latest(database: Database, empty: Empty) -> None:
    assert schema_version(empty().connect()) == 0
    assert schema_version(database.connect()) == latest_version()


def test_a_newer_schema_is_refused_and_not_touched(database: Database) -> None:
    database.execute("insert into tally.migration (version, name) values (99, 'later')")
    database.execute("drop function tally.open_count")

    with pytest.raises(SchemaTooNew, match="the schema is at 99"):
        migrate(database.connect())

    assert database.value("select to_regproc('tally.open_count')") is None


def test_a_database_that_is_not_utf8_is_refused(empty: Empty, server: TestServer) -> None:
    # The template's own provider may know UTF-8 only.
    provider = "locale_provider libc" if int(server.version.split(".")[0]) >= 15 else ""
    latin = empty(f"encoding 'LATIN1' lc_collate 'C' lc_ctype 'C' template template0 {provider}")

    with pytest.raises(UnfitServer, match="encoding UTF8 is needed, this one has LATIN1"):
        migrate(latin.connect())

    assert latin.value("select to_regnamespace('tally')") is None


def test_a_migration_that_fails_leaves_nothing_behind(empty: Empty, monkeypatch: pytest.MonkeyPatch) -> None:
    target = empty()
    monkeypatch.setattr(migrations, "_replace_functions", lambda connection: connection.execute("select 1 / 0"))

    with pytest.raises(Exception, match="division by zero"):
        migrate(target.connect())

    assert target.value("select max(version) from tally.migration") == latest_version() - 1
    monkeypatch.undo()
    assert migrate(target.connect()) == 1


def test_a_refused_migration_is_one_line_and_exit_status_1(database: Database, run_program: RunProgram) -> None:
    database.execute("insert into tally.migration (version, name) values (99, 'later')")

    program = run_program("sql", "migrate", ready=False)

    assert program.wait() == 1
    assert program.output == (
        f"python -m sql migrate: the schema is at 99, this program knows {latest_version()}; "
        "it serves programs that know 99 or later\n"
    )


def test_a_newer_schema_that_serves_this_program_is_left_as_it_is(database: Database) -> None:
    database.execute(
        "insert into tally.migration (version, name, serves) values (98, 'later', 97), (99, 'later still', %s)",
        (latest_version(),),
    )
    with pytest.raises(SchemaTooNew, match="it serves programs that know 97 or later"):
        migrate(database.connect())
    database.execute("update tally.migration set serves = 2 where version = 98")
    database.execute("drop function tally.open_count")

    assert migrate(database.connect()) == 0
    assert schema_version(database.connect()) == 99
    assert database.value("select to_regproc('tally.open_count')") is None


def test_each_migration_says_which_programs_it_serves(database: Database) -> None:
    assert database.rows("select name from tally.migration where version >= 4 and serves is null") == []


def test_each_migration_changes_one_table(empty: Empty) -> None:
    target = empty()
    connection = target.connect()
    changed = {}
    for path in migrations._migrations():
        there = target.rows("select oid from pg_class where relnamespace = to_regnamespace('tally')")
        with connection.transaction():
            migrations._apply(connection, [path, path])
            changed[path.name] = connection.execute(STRONGLY_LOCKED, ([oid for (oid,) in there],)).fetchall()

    assert {name: tables for name, tables in changed.items() if len(tables) > 1} == {}
    assert changed["0003_say_which_dispatcher_waits.sql"] == [("tally.dispatcher",)]


def test_queue_sets_capacity_and_pause_and_shows_what_it_holds(database: Database, run_program: RunProgram) -> None:
    connection = database.connect()
    submit_all(connection, 3)
    claim(connection, register(connection), free=1)

    program = run_program("sql", "queue", "default", "--max-open", "7", "--pause", ready=False)

    assert program.wait() == 0
    assert database.rows("select max_open, paused_at is not null from tally.queue") == [(7, True)]
    header, row = program.output.splitlines()[:2]
    counts = ["QUEUED", "due_later", "RUNNING", "SUCCEEDED", "FAILED", "CANCELED"]
    assert header.split() == ["queue", "max_open", "paused", *counts]
    assert row.split() == ["default", "7", "True", "2", "0", "1", "0", "0", "0"]


def test_queue_makes_a_queue_without_a_limit_and_resumes_one(database: Database, run_program: RunProgram) -> None:
    call(database.connect(), "pause_queue", queue="default")

    assert run_program("sql", "queue", "mail", "--max-open", "none", ready=False).wait() == 0
    assert run_program("sql", "queue", "default", "--resume", ready=False).wait() == 0

    queues = database.rows("select name, max_open, paused_at from tally.queue order by name")
    assert queues == [("default", 10000, None), ("mail", None, None)]


@pytest.mark.parametrize("asked", [["--pause"], ["--resume"], []])
def test_a_queue_that_is_not_there_is_exit_status_1(
    database: Database, run_program: RunProgram, asked: list[str]
) -> None:
    program = run_program("sql", "queue", "nowhere", *asked, ready=False)

    assert program.wait() == 1
    assert program.output == "there is no queue named 'nowhere'\n"


@pytest.mark.parametrize("capacity", ["0", "-1", "many", "1_0", "٣", "2147483648"])
def test_a_capacity_that_is_none_is_exit_status_2(database: Database, run_program: RunProgram, capacity: str) -> None:
    assert run_program("sql", "queue", "default", f"--max-open={capacity}", ready=False).wait() == 2
    assert database.value("select max_open from tally.queue") == 10000


def test_status_shows_what_kinds_declare_and_how_many_tasks_wait_for_their_time(
    database: Database, run_program: RunProgram
) -> None:
    connection = database.connect()
    publish(connection, queue="mails", slot="process", time_limit_seconds=2.5)
    dispatcher = register(connection)
    submit_all(connection, 3)
    (first, *_) = claim(connection, dispatcher, free=2)
    retry(connection, dispatcher, Ended(id=first.id, delay=3600))

    program = run_program("sql", "status", ready=False)

    assert program.wait() == 0
    lines = [line.split() for line in program.output.splitlines()]
    assert ["default", "10000", "False", "2", "1", "1", "0", "0", "0"] in lines
    assert ["echo", "mails", "process", "2.5", "3", "fail", "False"] in [line[:7] for line in lines]


def test_status_shows_dispatchers_with_their_trouble(database: Database, run_program: RunProgram) -> None:
    connection = database.connect()
    dispatcher = register(connection)
    call(connection, "beat_dispatcher", dispatcher=dispatcher, trouble="no permission")

    program = run_program("sql", "status", ready=False)

    assert program.wait() == 0
    (line,) = (line for line in program.output.splitlines() if str(dispatcher) in line)
    for shown in ("thishost", "4711", "running", "no permission"):
        assert shown in line
