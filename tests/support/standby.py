"""Standbys of the suite's server: one that is there, and one that commits wait for in vain."""

import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg

from sql.account import run
from sql.throwaway import binaries
from tests.support.database import Database
from tests.support.server import TestServer
from tests.support.waiting import wait_until

SYNC_REP = "from pg_stat_activity where wait_event = 'SyncRep' and datname = current_database()"


@contextmanager
def standby_of(database: Database) -> Iterator[Database]:
    """Start a standby of the suite's server, streaming, in a folder beside it; yield the same database there."""
    server = database.server
    folder = server.folder / "standby"
    folder.mkdir()
    standby = TestServer(folder, binaries())
    made = standby._server
    copy = ["--write-recovery-conf", "--checkpoint", "fast", "--no-sync", "--dbname", server.url("postgres")]
    run([made.binaries / "pg_basebackup", "--pgdata", made.data, *copy], made.owner)
    there = Database(standby, database.name)
    try:
        standby.start()
        with there.connections:
            yield there
    finally:
        standby.stop("immediate")
        shutil.rmtree(folder)


@contextmanager
def standby_awaited(server: TestServer) -> Iterator[None]:
    """Let every commit wait for a standby that is not there."""
    server.value("alter system set synchronous_standby_names = 'nobody'")
    server.value("select pg_reload_conf()")
    in_force = threading.Event()
    with psycopg.connect(server.url("postgres"), autocommit=True) as probe, ThreadPoolExecutor(1) as aside:
        # With something written: a transaction that only has a number waits for nobody.
        write = "select pg_logical_emit_message(true, 'test', '')"
        aside.submit(lambda: [probe.execute(write) for _ in iter(in_force.is_set, True)])
        waiting = f"select count(*) {SYNC_REP} and pid = {probe.info.backend_pid}"
        wait_until(lambda: server.value(waiting), "a commit waits for a standby")
        in_force.set()
        server.value(f"select pg_cancel_backend({probe.info.backend_pid})")
    try:
        yield
    finally:
        server.value("alter system reset synchronous_standby_names")
        server.value("select pg_reload_conf()")
