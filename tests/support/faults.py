"""Faults injected where they happen: triggers that delay or refuse a submit, a claim or a terminal write of tasks."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime

from tests.support.database import Database

CLAIM = "new.state = 'RUNNING' and old.state = 'QUEUED'"
FINISH = "new.state in ('SUCCEEDED', 'FAILED', 'CANCELED') and old.state = 'RUNNING'"
REFUSE = "new.state = 'FAILED' and old.state = 'QUEUED'"

BEFORE_INSERT = "create trigger fault_insert before insert"
AFTER_INSERT = "create trigger fault_insert after insert"
AT_COMMIT = "create constraint trigger fault_insert after insert"


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """While inside, this process is stopped in its tracks, as one backend of a server may be."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@contextmanager
def insert_fault(database: Database, moment: str, act: str) -> Iterator[None]:
    """While inside, `act` happens at this moment of the insert of each task whose input has the member `bad`."""
    database.execute(
        f"create function tally.fault_insert() returns trigger language plpgsql as $$ begin {act}; return new; end $$"
    )
    deferred = "deferrable initially deferred" if moment == AT_COMMIT else ""
    database.execute(
        f"{moment} on tally.task {deferred} for each row when (new.input ? 'bad') execute function tally.fault_insert()"
    )
    try:
        yield
    finally:
        database.execute("drop function tally.fault_insert() cascade")


@contextmanager
def fault(database: Database, step: str, act: str, only: str = "true", *, at_commit: bool = False) -> Iterator[None]:
    """While inside, `act` (a plpgsql statement) happens at each such step of the tasks that `only` selects.

    With `at_commit`, not when the row is written but when its transaction is committed.
    """
    name = f"fault_{abs(hash((step, act, only, at_commit)))}"
    kind, when = ("trigger", "before update on tally.task")
    if at_commit:
        kind, when = ("constraint trigger", "after update on tally.task deferrable initially deferred")
    database.execute(
        f"create function tally.{name}() returns trigger language plpgsql as $$ begin {act}; return new; end $$"
    )
    database.execute(
        f"create {kind} {name} {when} for each row when (({step}) and ({only})) execute function tally.{name}()"
    )
    try:
        yield
    finally:
        database.execute(f"drop function tally.{name}() cascade")


def raising(text: str = "refused by a trigger", code: str = "P0001") -> str:
    return f"raise exception '{text}' using errcode = '{code}'"


def sleeping(seconds: float) -> str:
    return f"perform pg_sleep({seconds})"


def recorded(database: Database, act: str) -> str:
    """Do `act`, after a line in the server's log, which outlives the transaction; see `tries`."""
    return f"raise log 'try in {database.name}'; {act}"


def tries(database: Database) -> list[tuple[float, float]]:
    """When each try of what was `recorded` began and failed, in seconds, from the server's log."""
    begun: dict[str, float] = {}
    found: list[tuple[float, float]] = []
    for line in database.server.log.splitlines():
        stamped = re.match(r"(\S+ \S+) \S+ \[(\d+)\] \S* (LOG|ERROR):  (.*)", line)
        if not stamped:
            continue
        moment, process, level, text = stamped.groups()
        seconds = datetime.fromisoformat(moment).timestamp()
        if level == "LOG" and text == f"try in {database.name}":
            begun[process] = seconds
        elif level == "ERROR" and process in begun:
            found.append((begun.pop(process), seconds))
    return found
