"""The suite's own means: what other tests take for granted."""

import threading
from collections.abc import Callable
from datetime import timedelta
from time import monotonic
from typing import LiteralString

import psycopg
import pytest

from sql.connect import DeadlinePassed, connect
from tests.support.database import Database
from tests.support.proxy import Proxy
from tests.support.server import TestServer
from tests.support.waiting import wait_until


def test_a_clone_is_migrated_and_empty(database: Database) -> None:
    assert database.value("select count(*) from tally.task") == 0


@pytest.mark.parametrize("fault", ["stop", "kill", "freeze"])
def test_the_server_is_back_for_the_next_test(server: TestServer, database: Database, fault: str) -> None:
    getattr(server, fault)()

    assert server.running == (fault == "freeze")
    server.bring_up()
    assert database.connect().execute("select 1").fetchone() == (1,)


def test_a_muted_proxy_lets_the_statement_through_and_cut_loses_its_reply(
    database: Database, proxy: Callable[[str, int], Proxy]
) -> None:
    way = proxy("127.0.0.1", database.server.port)
    with psycopg.connect(way.url_for(database.url), autocommit=True) as connection:
        lost = threading.Thread(target=_execute_and_lose, args=(connection, "create table written ()"))
        way.mute()
        lost.start()
        wait_until(lambda: database.value("select to_regclass('written')"), "the statement came through")
        assert lost.is_alive()

        way.cut()

        lost.join(10)
        assert not lost.is_alive()


def _execute_and_lose(connection: psycopg.Connection, statement: LiteralString) -> None:
    with pytest.raises(psycopg.OperationalError):
        connection.execute(statement)


def test_a_frozen_proxy_forwards_nothing_until_it_thaws(database: Database, proxy: Callable[[str, int], Proxy]) -> None:
    way = proxy("127.0.0.1", database.server.port)
    patience = timedelta(seconds=2)
    with connect(
        way.url_for(database.url), name="test", connect_timeout=patience, statement_timeout=patience
    ) as connection:
        way.freeze()
        with pytest.raises(DeadlinePassed), connection.by(monotonic() + 0.2):
            connection.execute("select 1")

    way.thaw()

    with psycopg.connect(way.url_for(database.url)) as again:
        assert again.execute("select 1").fetchone() == (1,)


def test_a_proxy_refuses_and_accepts_again(database: Database, proxy: Callable[[str, int], Proxy]) -> None:
    way = proxy("127.0.0.1", database.server.port)
    way.refuse()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(way.url_for(database.url))

    way.accept()

    with psycopg.connect(way.url_for(database.url)) as connection:
        assert connection.execute("select 1").fetchone() == (1,)
