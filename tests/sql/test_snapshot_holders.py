"""Who keeps dead rows without being a session of this database: a prepared transaction, and a standby's slot.

On a server of its own, since the suite's takes no prepared transactions.
"""

from collections.abc import Iterator

import pytest

from sql.throwaway import binaries
from tests.support.database import Database
from tests.support.server import TestServer, started_server
from tests.support.standby import standby_of
from tests.support.waiting import wait_until

HOLDERS = "select application_name, state, transactions from tally.snapshot_holders('0')"


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    with started_server(binaries()) as own:
        own.value("alter system set max_prepared_transactions = 1")
        own.stop()
        own.start()
        yield own


def begin_many_transactions(database: Database) -> None:
    """Let a hundred thousand transactions begin: each turn of the loop is one, below another."""
    database.execute(
        """
        create table counted ();
        do $$ begin
            for v_turn in 1 .. 100001 loop
                begin
                    insert into counted default values;
                exception
                    when division_by_zero then null;
                end;
            end loop;
        end $$
        """
    )


def test_a_prepared_transaction_is_named(database: Database) -> None:
    session = database.connect()
    session.execute("begin")
    session.execute("create table written ()")
    session.execute("prepare transaction 'forgotten'")

    ((name, state, transactions),) = database.rows(HOLDERS)

    session.execute("rollback prepared 'forgotten'")
    assert (name, state) == ("prepared transaction forgotten", "prepared")
    assert transactions >= 0


def test_a_replication_slot_is_named_that_keeps_rows_for_a_standby(database: Database) -> None:
    database.execute("select pg_create_physical_replication_slot('theirs')")
    with standby_of(database) as standby:
        for setting in (
            "primary_slot_name = 'theirs'",
            "hot_standby_feedback = on",
            "wal_receiver_status_interval = 1",
        ):
            standby.execute(f"alter system set {setting}")
        standby.execute("select pg_reload_conf()")
        report = standby.connect("report")
        report.execute("begin isolation level repeatable read")
        report.execute("select 1")
        wait_until(
            lambda: database.value("select xmin from pg_replication_slots where active"), "the standby tells its xmin"
        )
        assert database.rows(HOLDERS) == []

        begin_many_transactions(database)

        (name, state, transactions), *_ = database.rows(HOLDERS)
        assert (name, state) == ("replication slot theirs", "active")
        assert transactions > 100_000
    wait_until(lambda: not database.value("select active from pg_replication_slots"), "nobody uses the slot any more")
    database.execute("select pg_drop_replication_slot('theirs')")
