"""Faults injected where they happen: triggers that delay or refuse a claim or a terminal write of some tasks."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.database import Database

CLAIM = "new.state = 'RUNNING' and old.state = 'QUEUED'"
FINISH = "new.state in ('SUCCEEDED', 'FAILED', 'CANCELED') and old.state = 'RUNNING'"
REFUSE = "new.state = 'FAILED' and old.state = 'QUEUED'"


@contextmanager
def fault(database: Database, step: str, act: str, only: str = "true") -> Iterator[None]:
    """While inside, `act` (a plpgsql statement) happens at each such step of the tasks that `only` selects."""
    name = f"fault_{abs(hash((step, act, only)))}"
    database.execute(
        f"create function tally.{name}() returns trigger language plpgsql as $$ begin {act}; return new; end $$"
    )
    database.execute(
        f"create trigger {name} before update on tally.task for each row"
        f" when (({step}) and ({only})) execute function tally.{name}()"
    )
    try:
        yield
    finally:
        database.execute(f"drop function tally.{name}() cascade")


def raising(text: str = "refused by a trigger") -> str:
    return f"raise exception '{text}'"


def sleeping(seconds: float) -> str:
    return f"perform pg_sleep({seconds})"
