"""A migration beside traffic and other sessions' locks: how it waits, what it holds meanwhile, what it tells."""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from sql import migrate as migrations
from sql.migrate import migrate
from tests.sql.calls import submit_all
from tests.support.database import Database, holding
from tests.support.program import RunProgram
from tests.support.waiting import wait_until


class Later:
    """A migration that is to come, known in this process."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor) -> None:
        self._path = folder / "9999_later.sql"
        self._known = migrations._migrations()
        self._monkeypatch = monkeypatch
        self._pool = pool

    def __call__(self, text: str) -> None:
        self._path.write_text(text)
        self._monkeypatch.setattr(migrations, "_migrations", lambda: [*self._known, self._path])

    def run(self, database: Database) -> "Future[int]":
        return self._pool.submit(migrate, database.connect("migrating"))


@pytest.fixture
def later(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Iterator[Later]:
    caplog.set_level(logging.INFO, "tally.migrate")
    with ThreadPoolExecutor() as pool:
        yield Later(tmp_path, monkeypatch, pool)


def waits(database: Database, name: str) -> bool:
    """Does the session of this name wait for a lock?"""
    waiting = """
        select pid from pg_locks join pg_stat_activity using (pid)
        where application_name = %s and datname = current_database() and not granted
    """
    return bool(database.rows(waiting, (name,)))


def timed(call: Callable[[], Any]) -> float:
    began = monotonic()
    call()
    return monotonic() - began


def test_a_migration_waits_a_moment_at_a_time_and_traffic_passes(
    database: Database, later: Later, caplog: pytest.LogCaptureFixture
) -> None:
    later("alter table tally.task add column remark text")
    with holding(
        database, "update tally.queue set max_open = 9; lock table tally.task in row exclusive mode"
    ) as holder:
        migrating = later.run(database)
        wait_until(lambda: "migration.waiting" in caplog.text, "it is told who is in the way")
        waits = [timed(lambda: submit_all(database.connect(), 1)) for _ in range(10)]
        still = not migrating.done()

    assert migrating.result(20) == 1
    assert still
    assert max(waits) < 1
    (line,) = {record.message for record in caplog.records if "migration.waiting" in record.message}
    for shown in (f"pid={holder} ", "name='holder'", "lock='relation tally.task AccessExclusiveLock'"):
        assert shown in line
    assert "migration.paused tries=1 error=canceling statement due to lock timeout" in caplog.text
    assert database.value("select count(remark) from tally.task") == 0


def test_between_its_tries_a_migration_holds_nothing(
    database: Database, later: Later, caplog: pytest.LogCaptureFixture
) -> None:
    later("lock table tally.queue in access exclusive mode; lock table tally.task in access exclusive mode")
    held = """
        select distinct locktype, relation::regclass::text from pg_locks join pg_stat_activity using (pid)
        where datname = current_database() and application_name = 'migrating'
            and (locktype = 'advisory' or relation in ('tally.queue'::regclass, 'tally.task'::regclass))
        order by locktype
    """
    with holding(database, "lock table tally.task in access share mode"):
        migrating = later.run(database)
        wait_until(lambda: len(database.rows(held)) == 3, "it has one table's lock and waits for the other's")
        wait_until(lambda: "migration.paused tries=1" in caplog.text, "that try is over")
        wait_until(lambda: database.rows(held) == [], "it pauses", seen=lambda: database.rows(held))

    assert migrating.result(20) == 1


def test_a_deadlock_with_traffic_is_another_try(
    database: Database, later: Later, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "LONGEST_WAIT_MILLISECONDS", 20_000)
    later(
        """
        set local deadlock_timeout = '20ms';
        lock table tally.task in access exclusive mode;
        select pg_advisory_xact_lock(1);
        lock table tally.queue in access exclusive mode
        """
    )
    rival = database.connect("rival")
    with rival.transaction(), ThreadPoolExecutor() as pool:
        rival.execute("set local deadlock_timeout = '20s'; lock table tally.queue in access share mode")
        with holding(database, "select pg_advisory_xact_lock(1)"):
            migrating = later.run(database)
            wait_until(lambda: waits(database, "migrating"), "the migration has one lock, and waits")
            reading = pool.submit(rival.execute, "lock table tally.task in access share mode")
            wait_until(lambda: waits(database, "rival"), "the rival waits for the migration")
        reading.result(20)

    assert migrating.result(20) == 1
    assert "migration.paused tries=1 error=deadlock detected" in caplog.text


def test_a_function_that_somebody_else_changes_is_another_try(
    database: Database, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "LONGEST_WAIT_MILLISECONDS", 20_000)
    caplog.set_level(logging.INFO, "tally.migrate")
    with ThreadPoolExecutor() as pool:
        with holding(database, "alter function tally.open_count(text) cost 7"):
            migrating = pool.submit(migrate, database.connect("migrating"))
            wait_until(lambda: waits(database, "migrating"), "the migration waits for the other's end")

        assert migrating.result(20) == 0
    assert "tuple concurrently updated" in caplog.text
    assert database.value("select procost from pg_proc where oid = 'tally.open_count'::regproc") == 100


@pytest.mark.parametrize(
    ("act", "lock"),
    [
        ("alter function tally.open_count(text) cost 7", "transactionid ShareLock"),
        ("select pg_advisory_xact_lock(hashtextextended('tally:migrate', 0))", "advisory ExclusiveLock"),
    ],
)
def test_a_signal_ends_a_migration_that_waits_and_nothing_stays(
    database: Database, run_program: RunProgram, act: str, lock: str
) -> None:
    with holding(database, act) as holder:
        program = run_program("sql", "migrate", ready=False)
        program.wait_for(f"migration.waiting pid={holder} name='holder'")
        began = monotonic()
        status = program.stop()

        assert (status, monotonic() - began < 2) == (1, True)
        assert f"lock='{lock}'" in program.output
        assert program.output.endswith("python -m sql migrate: stopped\n")
        left = "select pid from pg_stat_activity where datname = current_database() and application_name = 'tally-sql'"
        wait_until(lambda: not database.rows(left), "its session is gone")
