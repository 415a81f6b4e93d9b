"""Faults injected where they happen: triggers that delay or refuse a submit, a claim or a terminal write of tasks."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime

from tests.support.database import Database
from tests.support.server import TestServer
from tests.support.waiting import wait_until

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
def read_only(server: TestServer, database: Database) -> Iterator[None]:
    """Let every new transaction be read-only, in sessions that are open too."""
    server.value("alter system set default_transaction_read_only = on")
    server.value("select pg_reload_conf()")
    try:
        wait_until(lambda: database.value("show transaction_read_only") == "on", "the database is read-only")
        yield
    finally:
        server.value("alter system reset default_transaction_read_only")
        server.value("select pg_reload_conf()")
        wait_until(lambda: database.value("show transaction_read_only") == "off", "the database can be written")


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
