"""Whatever an earlier program asks of the database, the current schema answers, upgraded or new."""

import re
from pathlib import Path

import pytest
from psycopg import pq

from tests.sql.calls import claim, register
from tests.sql.test_migrate import SCHEMA
from tests.support.database import Database
from tests.support.program import programs

pytestmark = pytest.mark.scale

SIGNATURES = """
select proname, pg_get_function_arguments(oid), pg_get_function_result(oid)
from pg_proc where pronamespace = 'tally'::regnamespace
"""
# One is for the embedded server's superuser and two are asked only of a database without our schema.
ELSEWHERE = {"create_embedded_database", "create_embedded_role", "create_migration_table"}


@pytest.fixture
def upgraded(earlier_database: Database) -> Database:
    with programs(earlier_database.url) as run:
        assert run("sql", "migrate", ready=False).wait() == 0
    return earlier_database


def numbered(text: str) -> str:
    """Return a statement with its parameters as the server knows them, $1 and so on."""
    for number, name in enumerate(dict.fromkeys(re.findall(r"%\(\w+\)s", text)), 1):
        text = text.replace(name, f"${number}")
    return text


def test_an_upgraded_schema_is_the_same_as_a_new_one(upgraded: Database, database: Database) -> None:
    assert upgraded.rows(SCHEMA) == database.rows(SCHEMA)


def test_each_function_of_the_earlier_schema_is_still_there(earlier_database: Database, database: Database) -> None:
    earlier = set(earlier_database.rows(SIGNATURES))

    assert len(earlier) > 15
    assert earlier - set(database.rows(SIGNATURES)) == set()


def test_each_statement_of_the_earlier_programs_is_understood(earlier: Path, database: Database) -> None:
    connection = database.connect()
    refused = {}
    asked = 0
    for path in sorted((earlier / "sql" / "queries").glob("*.sql")):
        if path.stem in ELSEWHERE:
            continue
        for text in re.sub(r"--.*", "", path.read_text()).split(";"):
            result = connection.pgconn.prepare(b"", numbered(text).encode())
            asked += 1
            if result.status != pq.ExecStatus.COMMAND_OK:
                refused[path.stem] = result.error_message.decode()

    assert asked > 40
    assert refused == {}


def test_a_task_at_the_last_priority_makes_room_there_and_is_claimed_all_the_same(earlier_database: Database) -> None:
    earlier_database.execute(
        "insert into tally.task (token, queue, kind, input, priority) "
        "values (gen_random_uuid(), 'default', 'echo', '{}', 32767)"
    )

    with programs(earlier_database.url) as run:
        assert run("sql", "migrate", ready=False).wait() == 0

    assert earlier_database.rows("select priority, due_at from tally.task") == [(32766, None)]
    assert earlier_database.rows("select conname from pg_constraint where not convalidated") == []
    connection = earlier_database.connect()
    assert len(claim(connection, register(connection))) == 1
