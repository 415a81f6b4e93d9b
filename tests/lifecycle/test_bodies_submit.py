"""A body can submit more tasks, wherever it runs."""

from pathlib import Path

import pytest

from tests.support.ledger import Ledger
from tests.support.program import RunProgram

TASKS = """
import os

import psycopg
from dispatcher import task

@task("leaf")
def leaf(input): return input

@task("thread")
def thread(input): return leaf.submit({"from": "thread"})

@task("process", slot="process")
def process(input): return leaf.submit({"from": "process"})

@task("async")
async def later(input): return leaf.submit({"from": "async"}, priority=-1)

@task("in", slot="process")
def in_transaction(input):
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        left = leaf.submit_in(connection, {"from": "nowhere"})
        connection.rollback()
        return leaf.submit_in(connection, {"from": "in"})
"""


@pytest.mark.parametrize("kind", ["thread", "process", "async", "in"])
def test_what_a_body_submits_is_run_too(ledger: Ledger, run_program: RunProgram, tmp_path: Path, kind: str) -> None:
    (tmp_path / "submitting.py").write_text(TASKS)
    dispatcher = run_program("dispatcher", "--tasks", "submitting", env={"PYTHONPATH": str(tmp_path)})

    tasks = ledger.submit_many(kind, [{}, {}, {}])

    for task in tasks:
        leaf = ledger.await_end(ledger.await_end(task)["result"])
        assert (leaf["kind"], leaf["state"], leaf["result"]) == ("leaf", "SUCCEEDED", {"from": kind})
    assert ledger.await_all() == {"SUCCEEDED": 6}
    assert dispatcher.stop() == 0
