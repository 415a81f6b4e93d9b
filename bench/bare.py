"""The limit: the same functions in the same transactions, called from one connection with nothing around them."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID, uuid4

from bench.stage import Stage
from sql import statement
from sql.connect import Connection


class BareLoop:
    """Claims and finishes as a dispatcher does, one batch after the other, its cursor behind the last claim."""

    def __init__(self, stage: Stage, dispatcher: UUID, batch: int) -> None:
        self._stage = stage
        self._dispatcher = dispatcher
        self._batch = batch
        self._number = 0
        self._cursor = "{}"
        self.claimed: list[tuple[int, int]] = []
        """Id and attempt of the tasks of the last claim."""

    def claim(self) -> float:
        """Claim a batch; returns the seconds that took."""
        self._number += 1
        began = time.perf_counter()
        rows = self._stage.query(
            "claim_tasks",
            dispatcher=self._dispatcher,
            number=self._number,
            queue="default",
            free=self._batch,
            after_positions=self._cursor,
            excluded=[],
            only=None,
        )
        took = time.perf_counter() - began
        self.claimed = [(row[0], row[1]) for row in rows]
        if rows:
            self._cursor = f'{{"0": {rows[-1][5]}}}'
        return took

    def finish(self) -> float:
        """Write that the tasks of the last claim have succeeded; returns the seconds that took."""
        count = len(self.claimed)
        began = time.perf_counter()
        self._stage.query(
            "finish_tasks",
            dispatcher=self._dispatcher,
            ids=[id for id, _ in self.claimed],  # noqa: A001 - the column's name
            attempts=[attempt for _, attempt in self.claimed],
            states=["SUCCEEDED"] * count,
            results=["null"] * count,
            errors=[None] * count,
            endings=["returned"] * count,
        )
        return time.perf_counter() - began


@contextmanager
def bare_loop(stage: Stage, batch: int) -> Iterator[BareLoop]:
    """Enter a dispatcher of which there is only a row, and let it leave: the next must not wait for it."""
    dispatcher, place = uuid4(), {"host": "", "boot_id": "", "network_namespace": ""}
    stage.query("register_dispatcher", dispatcher=dispatcher, pid=0, slots=batch, queue="default", **place)
    yield BareLoop(stage, dispatcher, batch)
    stage.query("leave_dispatcher", dispatcher=dispatcher)


def submit(connection: Connection, tasks: int = 1, *, queue: str = "default", input_text: str = "{}") -> list[int]:
    """Submit no-op tasks as admission does, in the transaction that is open or in one of its own; returns their ids.

    Where the input is not empty, they are to stamp the file that it names.
    """
    rows = connection.execute(
        statement("queries/submit_tasks"),
        {
            "queue": queue,
            "tokens": [uuid4() for _ in range(tasks)],
            "kinds": ["noop" if input_text == "{}" else "stamp"] * tasks,
            "inputs": [input_text] * tasks,
            "keys": [None] * tasks,
            "key_wait_ms": 100,
            "notify": True,
            "retry_of": None,
        },
    ).fetchall()
    assert all(verdict == "admitted" for verdict, *_ in rows)
    return [row[1] for row in rows]
