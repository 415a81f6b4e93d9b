"""The transitions, called straight through psycopg by the statements that the two programs use."""

import json
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Thread
from typing import Any, NamedTuple, TypeVar
from uuid import UUID, uuid4

from psycopg.types.json import Json

from sql import statement
from sql.connect import Connection
from tests.support.database import Database
from tests.support.waiting import wait_until

T = TypeVar("T")


class Claimed(NamedTuple):
    """A row of `claim_tasks` and `settle_claim`."""

    id: int
    attempt: int
    kind: str
    input: str
    priority: int
    position: int


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One row of what `finish_tasks` is given."""

    id: int
    attempt: int = 1
    state: str = "SUCCEEDED"
    result: str | None = None
    error: str | None = None
    ending: str = "returned"


def succeeded(task: int, attempt: int = 1, result: str = "7") -> Outcome:
    return Outcome(id=task, attempt=attempt, result=result)


def failed(task: int, attempt: int = 1, error: str = '{"reason": "task raised ValueError"}') -> Outcome:
    return Outcome(id=task, attempt=attempt, state="FAILED", error=error, ending="raised")


def call(connection: Connection, name: str, **parameters: object) -> list[tuple[Any, ...]]:
    cursor = connection.execute(statement(f"queries/{name}"), parameters)
    return cursor.fetchall() if cursor.description else []


class Submitted(NamedTuple):
    """A row of `submit_tasks`."""

    verdict: str
    id: int | None
    row_token: UUID | None
    document: str | None
    revision: int = 0


def submit(connection: Connection, count: int = 1, *, queue: str = "default", notify: bool = True) -> list[int | None]:
    """Submit so many tasks of kind echo; None where the queue was full."""
    return [row.id for row in submit_rows(connection, [uuid4() for _ in range(count)], queue=queue, notify=notify)]


def submit_rows(
    connection: Connection,
    tokens: list[UUID],
    keys: list[str | None] | None = None,
    inputs: list[str] | None = None,
    *,
    queue: str = "default",
    notify: bool = True,
    key_wait_ms: int = 100,
    retry_of: list[int | None] | None = None,
) -> list[Submitted]:
    rows = call(
        connection,
        "submit_tasks",
        queue=queue,
        tokens=tokens,
        kinds=["echo" for _ in tokens],
        inputs=inputs or [f'{{"n": {number}}}' for number, _ in enumerate(tokens)],
        keys=keys or [None for _ in tokens],
        key_wait_ms=key_wait_ms,
        notify=notify,
        retry_of=retry_of,
    )
    return [Submitted(*row) for row in rows]


def submit_one(connection: Connection) -> int:
    (task,) = submit(connection)
    assert task is not None
    return task


def submit_all(connection: Connection, count: int) -> list[int]:
    return [task for task in submit(connection, count) if task is not None]


def register(connection: Connection, dispatcher: UUID | None = None) -> UUID:
    dispatcher = dispatcher or uuid4()
    call(
        connection,
        "register_dispatcher",
        dispatcher=dispatcher,
        host="thishost",
        boot_id="this boot",
        network_namespace="net:[1]",
        pid=4711,
        slots=8,
        queue="default",
    )
    return dispatcher


def beat(connection: Connection, dispatcher: UUID, trouble: str | None = None) -> int:
    ((number,),) = call(connection, "beat_dispatcher", dispatcher=dispatcher, trouble=trouble)
    return int(number)


def claim(
    connection: Connection,
    dispatcher: UUID,
    number: int = 1,
    *,
    queue: str = "default",
    free: int = 100,
    after_positions: dict[str, int] | None = None,
    excluded: Iterable[int] = (),
    only: Iterable[int] | None = None,
) -> list[Claimed]:
    rows = call(
        connection,
        "claim_tasks",
        dispatcher=dispatcher,
        number=number,
        queue=queue,
        free=free,
        after_positions=Json(after_positions or {}),
        excluded=list(excluded),
        only=None if only is None else list(only),
    )
    return [Claimed(*row) for row in rows]


def settle(connection: Connection, dispatcher: UUID, number: int = 1) -> list[Claimed]:
    return [Claimed(*row) for row in call(connection, "settle_claim", dispatcher=dispatcher, number=number)]


def refuse(
    connection: Connection, dispatcher: UUID, task: int, detail: str = "a trigger said no", attempt: int = 0
) -> None:
    call(connection, "refuse_claim", dispatcher=dispatcher, id=task, detail=detail, attempt=attempt)


def finish(connection: Connection, dispatcher: UUID, *outcomes: Outcome) -> dict[int, str]:
    """Write outcomes in one call; the verdict of each."""
    rows = call(
        connection,
        "finish_tasks",
        dispatcher=dispatcher,
        ids=[outcome.id for outcome in outcomes],
        attempts=[outcome.attempt for outcome in outcomes],
        states=[outcome.state for outcome in outcomes],
        results=[outcome.result for outcome in outcomes],
        errors=[outcome.error for outcome in outcomes],
        endings=[outcome.ending for outcome in outcomes],
    )
    assert len(rows) == len(outcomes)
    return dict(rows)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """One row of what `retry_tasks` is given: an attempt that ended and may be repeated."""

    id: int
    attempt: int = 1
    error: str = '{"reason": "task raised ValueError"}'
    ending: str = "raised"
    delay: float | None = None


class Retried(NamedTuple):
    """What `retry_tasks` answers for a task."""

    verdict: str
    state: str | None
    due_seconds: float | None


def retry(connection: Connection, dispatcher: UUID, *attempts: Ended) -> dict[int, Retried]:
    """Write attempts that may be repeated, in one call."""
    rows = call(
        connection,
        "retry_tasks",
        dispatcher=dispatcher,
        ids=[ended.id for ended in attempts],
        attempts=[ended.attempt for ended in attempts],
        errors=[ended.error for ended in attempts],
        endings=[ended.ending for ended in attempts],
        delays=[ended.delay for ended in attempts],
    )
    assert len(rows) == len(attempts)
    return {task: Retried(*row) for task, *row in rows}


def release(connection: Connection, *, queue: str = "default", limit: int = 1000) -> tuple[int, float | None]:
    """Let tasks be claimed whose time has come: how many were released, and in how many seconds the next is due."""
    ((released, next_seconds),) = call(
        connection, "release_due_tasks", queue=queue, limit=limit, excluded="{}", only=None
    )
    return int(released), next_seconds


def publish(connection: Connection, kind: str = "echo", dispatcher: UUID | None = None, /, **declared: object) -> int:
    """Publish one kind, of three attempts unless told otherwise; returns the highest revision."""
    row = {
        "kind": kind,
        "queue": "default",
        "input_schema": None,
        "slot": "thread",
        "time_limit_seconds": None,
        "max_attempts": 3,
        "on_crash": "fail",
        "backoff_first_seconds": 60,
        "backoff_factor": 2,
        "backoff_cap_seconds": 600,
    }
    kinds = Json([row | declared])
    ((revision,),) = call(connection, "publish_kinds", dispatcher=dispatcher or uuid4(), kinds=kinds)
    return int(revision)


def cancel(connection: Connection, task: int) -> dict[str, Any]:
    ((document,),) = call(connection, "cancel_task", id=task, notify=True)
    return loaded(document)


def fail_lost(connection: Connection, dispatcher: UUID, *held: tuple[int, int]) -> list[int]:
    """Give up rows under a dispatcher's id, each named by id and attempt."""
    rows = call(
        connection,
        "fail_lost_tasks",
        dispatcher=dispatcher,
        ids=[task for task, _ in held],
        attempts=[attempt for _, attempt in held],
    )
    return [task for (task,) in rows]


def condemn(
    connection: Connection,
    dispatcher: UUID,
    beat: int = 0,
    *,
    why: str = "exited",
    proof: str = "its name was free",
    only: Iterable[int] | None = None,
) -> dict[int, str]:
    """Stop a dispatcher and write its tasks; the state of each that was written."""
    rows = call(
        connection,
        "condemn_dispatcher",
        dispatcher=dispatcher,
        beat=beat,
        why=why,
        proof=proof,
        only=None if only is None else list(only),
    )
    return dict(rows)


def recover(
    connection: Connection, holder: UUID, only: Iterable[int] | None = None, *, judge: UUID | None = None
) -> dict[int, str]:
    ids = None if only is None else list(only)
    return dict(call(connection, "recover_tasks", holder=holder, only=ids, dispatcher=judge))


def leave(connection: Connection, dispatcher: UUID) -> None:
    call(connection, "leave_dispatcher", dispatcher=dispatcher)


def document(connection: Connection, task: int) -> dict[str, Any]:
    ((text,),) = call(connection, "task_by_id", id=task)
    return loaded(text)


def loaded(text: str) -> dict[str, Any]:
    value = json.loads(text)
    assert isinstance(value, dict)
    return value


def starts_waiting(database: Database, rival: Callable[[Connection], T]) -> Future[T]:
    """Start a call on a connection and thread of its own, and return once it is seen waiting for a lock."""
    connection = database.connect("rival")
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(rival(connection))
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, name="rival", daemon=True).start()
    pid = connection.info.backend_pid
    wait_until(
        lambda: database.value(
            "select wait_event_type = 'Lock' and state = 'active' from pg_stat_activity where pid = %s", (pid,)
        ),
        says="the rival is waiting for a lock",
        seen=lambda: (future, database.rows("select state, wait_event_type, query from pg_stat_activity")),
    )
    assert not future.done()
    return future
