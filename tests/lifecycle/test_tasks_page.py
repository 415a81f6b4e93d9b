"""docs/tasks.md: its code runs as it stands there, in the order in which it is read."""

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from dispatcher import task
from dispatcher.declarations import Backoff, Options
from tests.sql import calls
from tests.support.database import Database
from tests.support.ledger import Ledger
from tests.support.program import ROOT, RunProgram, environment

PAGE: Final = (ROOT / "docs" / "tasks.md").read_text("utf-8")
BLOCKS: Final = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
PYTHON: Final = [text for language, text in BLOCKS if language == "python"]
SUBMIT, GRANT = (text for language, text in BLOCKS if language == "sql")


def execute(database: Database, text: str, user: str | None = None) -> list[tuple[object, ...]]:
    """Run each statement of a block, a transaction of its own; return the rows of all."""
    rows: list[tuple[object, ...]] = []
    conninfo = make_conninfo(database.url, user=user) if user else database.url
    with psycopg.connect(conninfo, autocommit=True) as connection:
        for each in text.split(";"):
            if each.strip():
                cursor = connection.execute(each)
                rows += cursor.fetchall() if cursor.description else []
    return rows


def test_its_code_declares_submits_and_runs(
    database: Database, ledger: Ledger, run_program: RunProgram, tmp_path: Path
) -> None:
    (tmp_path / "myapp.py").write_text("\n\n".join(text for text in PYTHON if "@task" in text))
    (tmp_path / "submits.py").write_text(
        "from myapp import *\n" + "\n".join(text for text in PYTHON if "@task" not in text)
    )
    dispatcher = run_program("dispatcher", "--tasks", "myapp", env={"PYTHONPATH": str(tmp_path)})

    env = environment({"DATABASE_URL": database.url, "PYTHONPATH": str(ROOT)})
    subprocess.run([sys.executable, "submits.py"], cwd=tmp_path, env=env, check=True, timeout=30)
    execute(database, SUBMIT)
    fetching = ledger.submit("pages.fetch", month=9)
    charging = ledger.submit("card.charge")
    resizing = ledger.submit("image.resize", width=8)

    assert ledger.await_all() == {"SUCCEEDED": 10}
    built = database.rows(
        "select (input ->> 'month')::int, result ->> 'pages' from tally.task where kind = 'report.build'"
    )
    assert sorted(built) == [(month, "12") for month in range(3, 10)]
    assert ledger.task(fetching)["result"] in [task for (task,) in database.rows("select id from tally.task")]
    assert ledger.task(resizing)["result"] == {"width": 4}
    assert [each["error"] and each["error"]["reason"] for each in ledger.task(charging)["attempts"]] == [
        "the terminal is busy",
        None,
    ]
    assert dispatcher.stop() == 0


@pytest.fixture
def clerk(database: Database) -> Iterator[str]:
    """The role of the page that may only submit."""
    try:
        execute(database, GRANT)
        yield "clerk"
    finally:
        execute(database, "drop owned by clerk; drop role clerk")


def test_its_grants_let_a_role_submit_and_no_more(database: Database, clerk: str) -> None:
    connection = database.connect()
    calls.claim(connection, calls.register(connection), free=1)
    waiting = "select count(*) from tally.dispatcher where waiting"
    assert database.value(waiting) == 1, "a dispatcher is there to be woken"

    made = execute(database, SUBMIT + SUBMIT, clerk)

    assert len({task for (task,) in made}) == 3
    for refused in (
        "select input from tally.task",
        "select result from tally.task",
        "update tally.task set state = 'CANCELED'",
        "delete from tally.task",
        "insert into tally.queue (name) values ('mine')",
        "insert into tally.kind (kind) values ('mine')",
        "select tally.cancel_task(1, true)",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            execute(database, refused, clerk)


def test_its_table_has_every_option_with_its_default() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| ", PAGE.partition("## What a body takes")[0], re.MULTILINE)
    shown = {name: default.strip("`") for name, default in rows}
    defaults = Options()

    assert shown.keys() == inspect.signature(task).parameters.keys() - {"kind", "unknown"}
    assert defaults == Options("thread", None, 1, Backoff(1, 2, 600), (Exception,), (), "fail", "default", True)
    assert shown == {
        "slot": '"thread"',
        "time_limit": "none",
        "max_attempts": "1",
        "backoff": "Backoff(first=1, factor=2, cap=600)",
        "retry_on": "Exception",
        "fail_on": "none",
        "on_crash": '"fail"',
        "queue": '"default"',
        "keep_result": "True",
    }
