"""Kinds that are attempted again, in both kinds of slots, and what must be so of their rows and of their starts.

Each start of a body leaves a line. A body that runs holds a lock of its task's own, which the kernel frees at its end,
however that comes: a start that finds it held is an attempt that began before the one before it had ended.
"""

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from dispatcher import Backoff, Context, Failed, Retry, task
from tests.support.database import Database

MODULES: Final = ("--tasks", "tests.support.tasks", "tests.support.attempts")
"""What a dispatcher is told to import."""
MOST: Final = 3
"""Attempts of each kind here."""
LIMIT_SECONDS: Final = 0.3
CRASHES: Final = (
    "process exited before worker completion",
    "dispatcher lost before worker completion",
    "dispatcher stopped before worker completion",
    "worker process killed by",
    "worker process exited with",
)

LOST: Final = "the database lost this task's outcome"


class Start(NamedTuple):
    """A line that a body left when it began."""

    task: int
    attempt: int
    pid: int
    is_alone: bool


@contextmanager
def _begun(input: dict[str, Any], context: Context) -> Iterator[None]:  # noqa: A002
    folder = Path(input["folder"])
    with (folder / f"{context.task_id}.lock").open("ab") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_alone = True
        except BlockingIOError:
            is_alone = False
        with (folder / "starts").open("ab", buffering=0) as file:
            file.write(f"{context.task_id} {context.attempt} {os.getpid()} {is_alone:d}\n".encode())
        yield


def starts(folder: Path) -> list[Start]:
    """Return the starts of the bodies, in their order."""
    file = folder / "starts"
    lines = file.read_text().splitlines() if file.exists() else []
    numbers = [[int(word) for word in line.split()] for line in lines]
    return [Start(id_, attempt, pid, bool(is_alone)) for id_, attempt, pid, is_alone in numbers]


def act(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Do, in each attempt, what is next among `acts`; the last of them again and again."""
    acts = input["acts"]
    with _begun(input, context):
        _act(acts[min(context.attempt, len(acts)) - 1], input, context)
    return {"attempt": context.attempt}


def _act(name: str, input: dict[str, Any], context: Context) -> None:  # noqa: A002
    match name:
        case "return":
            pass
        case "raise":
            raise ValueError("on purpose")
        case "fail":
            raise Failed("for good")
        case "again":
            raise Retry(after=input.get("after"), reason="not yet")
        case "sleep":
            context.sleep(input["seconds"])
        case "insist":
            time.sleep(input["seconds"])
        case "gate":
            while not Path(input["gate"]).exists():
                time.sleep(0.005)
        case "gate, then raise":
            _act("gate", input, context)
            raise ValueError("on purpose")
        case "exit":
            os._exit(3)
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case _:
            raise Failed(f"there is no act {name!r}")


_BRIEF: Final = Backoff(first=0.05, factor=2, cap=0.2)

# The attempts of these follow at once, or soon.
for _slot in ("thread", "process"):
    task(f"try.{_slot}.fail", slot=_slot, max_attempts=MOST, backoff=_BRIEF)(act)
    task(f"try.{_slot}.retry", slot=_slot, max_attempts=MOST, backoff=_BRIEF, on_crash="retry")(act)
    task(f"try.{_slot}.limited", slot=_slot, max_attempts=MOST, backoff=_BRIEF, time_limit=LIMIT_SECONDS)(act)

# The attempts of this one wait for hours, unless the body says otherwise.
task("try.later", max_attempts=MOST, backoff=Backoff(first=7200, factor=1, cap=7200))(act)


class Row(NamedTuple):
    """What the table says of a task."""

    id: int
    kind: str
    state: str
    attempt: int
    has_started: bool
    attempts: list[dict[str, Any]]
    error: dict[str, Any] | None


def rows(database: Database) -> list[Row]:
    found = database.rows(
        "select id, kind, state, attempt, started_at is not null, coalesce(attempts, '[]'), error"
        " from tally.task where kind like 'try.%' order by id"
    )
    return [Row(*each) for each in found]


def reconcile(database: Database, folder: Path) -> None:
    """What holds of attempts, whatever was killed and when, once no task is open."""
    begun = starts(folder)
    assert all(start.is_alone for start in begun), "an attempt began before the one before it had ended"
    attempts = [(start.task, start.attempt) for start in begun]
    assert len(attempts) == len(set(attempts)), "an attempt began twice"
    most = dict(database.rows("select kind, max_attempts from tally.kind"))
    last = {row.id: row.attempt for row in rows(database)}
    assert all(attempt <= last[task_id] for task_id, attempt in attempts), "an attempt began that nobody counted"
    for row in rows(database):
        assert row.state in {"SUCCEEDED", "FAILED", "CANCELED"}, row
        assert row.attempt <= most[row.kind], row
        # One that was canceled while it waited had no other attempt, but was to have one.
        followed = row.attempt - row.has_started
        assert [each["attempt"] for each in row.attempts] == list(range(1, followed + 1)), row
        reasons = [each["error"]["reason"] for each in row.attempts]
        assert all(reasons), row
        assert LOST not in [*reasons, (row.error or {}).get("reason")], f"its dispatcher did not hold it: {row}"
        crashed = [reason for reason in reasons if reason.startswith(CRASHES)]
        assert row.kind.endswith(".retry") or not crashed, f"a crashed task ran again: {row}"
        if row.state == "SUCCEEDED":
            assert (row.id, row.attempt) in attempts, f"it succeeded and never began: {row}"
