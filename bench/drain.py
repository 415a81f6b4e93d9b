"""Drain: queued no-op tasks through one dispatcher, against a bare loop of the same two statements.

The bare loop is one psycopg connection that claims and finishes batches of as many tasks as the dispatcher has
slots, by the same functions and in as many transactions. The dispatcher's clock runs from the first claim to the
last outcome, both as the database recorded them, so its start-up is left out.
"""

import time
from statistics import median
from uuid import uuid4

from bench.report import Table
from bench.stage import Stage


def measure(stage: Stage, *, tasks: int, slots: int, repeat: int) -> Table:
    """Return rates in tasks a second, and their ratio run by run."""
    bare, ours = [], []
    for _ in range(repeat):
        bare.append(_bare(stage, tasks, slots))
        ours.append(_ours(stage, tasks, slots))
    ratio = median(mine / limit for mine, limit in zip(ours, bare, strict=True))
    return Table(
        f"drain {tasks} no-op tasks, {slots} slots",
        {"bare claim+finish loop, tasks/s": bare, "dispatcher, tasks/s": ours},
        {"dispatcher / bare loop": ratio},
    )


def _fill(stage: Stage, tasks: int) -> None:
    stage.empty()
    stage.run("fill", tasks=tasks)
    stage.connection.execute(b"vacuum analyze tally.task")
    stage.connection.execute(b"checkpoint")


def _bare(stage: Stage, tasks: int, batch: int) -> float:
    _fill(stage, tasks)
    dispatcher = uuid4()
    stage.query(
        "register_dispatcher",
        dispatcher=dispatcher,
        host="",
        boot_id="",
        network_namespace="",
        pid=0,
        slots=batch,
        queue="default",
    )
    began, number, done = time.perf_counter(), 0, 0
    while True:
        number += 1
        rows = stage.query(
            "claim_tasks",
            dispatcher=dispatcher,
            number=number,
            queue="default",
            free=batch,
            after_positions="{}",
            excluded=[],
            only=None,
        )
        if not rows:
            break
        stage.query(
            "finish_tasks",
            dispatcher=dispatcher,
            ids=[row[0] for row in rows],
            attempts=[row[1] for row in rows],
            states=["SUCCEEDED"] * len(rows),
            results=["null"] * len(rows),
            errors=[None] * len(rows),
            endings=["returned"] * len(rows),
        )
        done += len(rows)
    took = time.perf_counter() - began
    # Or it would be woken, and waited for, in the next measurement.
    stage.query("leave_dispatcher", dispatcher=dispatcher)
    assert done == tasks
    stage.query("leave_dispatcher", dispatcher=dispatcher)
    return tasks / took


def _ours(stage: Stage, tasks: int, slots: int) -> float:
    _fill(stage, tasks)
    with stage.dispatcher(slots):
        stage.drained()
    succeeded, seconds = stage.run("succeeded")
    assert succeeded == tasks
    return float(tasks / seconds)
