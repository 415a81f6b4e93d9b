"""What the tests of the dispatcher's parts are given: claims, outcomes, and threads that end with the test."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Thread
from typing import Any, Final
from uuid import UUID, uuid4

from dispatcher.bodies import Body
from dispatcher.clock import clock_with_sleep
from dispatcher.declarations import Options
from dispatcher.endings import Limits
from dispatcher.kinds import Task
from dispatcher.messages import Claim, Ending, Outcome
from dispatcher.sessions import Caller, Database
from sql.states import TaskState
from tests.sql import calls
from tests.support.database import Database as TestDatabase

LIMITS: Final = Limits(max_depth=64, max_result_bytes=1024 * 1024, max_detail_bytes=16 * 1024)


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def a_claim(
    task: int = 1,
    *,
    kind: str = "echo",
    input: str = "{}",  # noqa: A002 - the member's own name
    attempt: int = 1,
    known_at: float | None = None,
) -> Claim:
    return Claim(task, attempt, kind, input, 0, task, clock_with_sleep() if known_at is None else known_at)


def a_task(kind: str, body: Body, **options: Any) -> Task:
    """Return a declared kind that is not among this process's own; options as in `Options`."""
    return Task(kind, body, Options(**options))


def succeeded(task: int, result: str = "7", attempt: int = 1) -> Outcome:
    return Outcome(a_claim(task, attempt=attempt), TaskState.SUCCEEDED, result, None, Ending.RETURNED)


def failed(task: int, reason: str = "task raised ValueError", attempt: int = 1) -> Outcome:
    error = json.dumps({"reason": reason, "detail": None})
    return Outcome(a_claim(task, attempt=attempt), TaskState.FAILED, None, error, Ending.RAISED)


def again(task: int, after_seconds: float | None = None, attempt: int = 1) -> Outcome:
    """Another attempt is asked for, since this one raised."""
    asked = failed(task, attempt=attempt)
    return asked._replace(state=TaskState.QUEUED, after_seconds=after_seconds)


def reach(database: TestDatabase, *, statement_seconds: float = 2.0, url: str = "") -> Database:
    """Reach the test's database as a dispatcher of a new id, not registered yet."""
    return Database(url or database.url, uuid4(), timedelta(seconds=2), timedelta(seconds=statement_seconds))


def registered(database: TestDatabase, *, statement_seconds: float = 2.0, url: str = "") -> Database:
    """Reach the test's database as a dispatcher that is registered in it."""
    reached = reach(database, statement_seconds=statement_seconds, url=url)
    calls.register(database.connect(), reached.dispatcher)
    return reached


def a_caller(database: TestDatabase, reached: Database, thread: str) -> Caller:
    """Return a thread's caller, closed when the test ends."""
    caller = Caller(reached, thread)
    database.connections.callback(caller.close)
    return caller


def claimed(database: TestDatabase, dispatcher: UUID, count: int) -> list[int]:
    """Submit so many tasks and claim them by SQL; return their ids."""
    connection = database.connect()
    calls.submit_all(connection, count)
    return [row.id for row in calls.claim(connection, dispatcher, free=count)]


def published(
    database: TestDatabase,
    kind: str = "echo",
    *,
    max_attempts: int = 3,
    on_crash: str = "fail",
    backoff_seconds: float = 0.0,
) -> None:
    """Publish what the database is to know of a kind."""
    calls.publish(
        database.connect(),
        kind,
        max_attempts=max_attempts,
        on_crash=on_crash,
        backoff_first_seconds=backoff_seconds,
        backoff_factor=1,
        backoff_cap_seconds=backoff_seconds,
    )


def attempts_of(database: TestDatabase, task: int) -> list[tuple[int, object]]:
    """Return the attempts of a task that another followed: their numbers and errors."""
    kept = database.value("select coalesce(attempts, '[]') from tally.task where id = %s", (task,))
    return [(each["attempt"], each["error"]) for each in kept]


def refuse_writes(database: TestDatabase, when: str, action: str = "raise exception 'no'") -> None:
    """Let a trigger do something before each update of a task that fits."""
    database.execute(
        f"""
        create function refuse_write() returns trigger language plpgsql
            as $$ begin {action}; return new; end $$;
        create trigger refuse_write before update on tally.task
            for each row when ({when}) execute function refuse_write();
        """
    )


def allow_writes(database: TestDatabase) -> None:
    database.execute("drop trigger refuse_write on tally.task")


def state(database: TestDatabase, task: int) -> str:
    return str(database.value("select state from tally.task where id = %s", (task,)))


def terminate(database: TestDatabase, name: str) -> int:
    """End the backends whose application_name starts so; how many there were."""
    ended = (
        "select count(pg_terminate_backend(pid, 5000)) from pg_stat_activity where starts_with(application_name, %s)"
    )
    return int(database.value(ended, (name,)))


@contextmanager
def running(*runs: Callable[[], None], stop: Callable[[], None]) -> Iterator[None]:
    """Run each on a thread; all must have ended soon after `stop`."""
    threads = [Thread(target=run, daemon=True) for run in runs]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop()
        for thread in threads:
            thread.join(10)
        assert not any(thread.is_alive() for thread in threads), "a thread did not end"
