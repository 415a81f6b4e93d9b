"""Submitting by the same SQL function as the web, and the ledger that every fault test ends with."""

import json
from collections import Counter
from typing import Any
from uuid import uuid4

from sql import statement
from tests.support.database import Database
from tests.support.waiting import wait_until

OPEN = ("QUEUED", "RUNNING")


class Ledger:
    """What was submitted, and what the database says became of it."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.submitted: list[int] = []

    def submit(self, kind: str, /, **input: Any) -> int:  # noqa: A002
        return self.submit_many(kind, [input])[0]

    def submit_many(self, kind: str, inputs: list[dict[str, Any]]) -> list[int]:
        parameters = {
            "queue": "default",
            "tokens": [uuid4() for _ in inputs],
            "kinds": [kind for _ in inputs],
            "inputs": [json.dumps(each) for each in inputs],
            "keys": [None for _ in inputs],
            "key_wait_ms": 100,
            "notify": True,
            "retry_of": None,
        }
        rows = self.database.rows(statement("queries/submit_tasks"), parameters)
        ids = [int(task_id) for _, task_id, *_ in rows]
        self.submitted += ids
        return ids

    def task(self, task_id: int) -> dict[str, Any]:
        document = self.database.value(statement("queries/task_by_id"), {"id": task_id})
        task: dict[str, Any] = json.loads(document)
        return task

    def state(self, task_id: int) -> str:
        return str(self.database.value("select state from tally.task where id = %s", (task_id,)))

    def states(self) -> Counter[str]:
        return Counter(state for (state,) in self.database.rows("select state from tally.task"))

    def await_state(self, task_id: int, *states: str, seconds: float = 20) -> dict[str, Any]:
        wait_until(
            lambda: self.state(task_id) in states,
            f"task {task_id} is {' or '.join(states)}",
            seconds,
            lambda: self.task(task_id),
        )
        return self.task(task_id)

    def await_end(self, task_id: int, seconds: float = 20) -> dict[str, Any]:
        return self.await_state(task_id, "SUCCEEDED", "FAILED", "CANCELED", seconds=seconds)

    def await_all(self, seconds: float = 20) -> Counter[str]:
        """Wait until no task is open; return how many ended in each state."""
        wait_until(lambda: not any(self.states()[each] for each in OPEN), "no task is open", seconds, self.states)
        return self.states()

    def cancel(self, task_id: int) -> None:
        self.database.rows(statement("queries/cancel_task"), {"id": task_id, "notify": True})

    def reconcile(self, effects: list[int] | None = None) -> None:
        """Every submission is a row, no row is anything else, and every body started at most once."""
        rows = {task_id for (task_id,) in self.database.rows("select id from tally.task")}
        assert rows == set(self.submitted)
        if effects is not None:
            assert len(effects) == len(set(effects)), "a body was started twice"
            assert set(effects) <= rows
