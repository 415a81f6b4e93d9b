"""Of several addresses, the one that answered last is tried first, and one that did not serve last."""

import socket
from contextlib import suppress
from datetime import timedelta

import pytest
from psycopg.conninfo import conninfo_to_dict

from sql.addresses import Address, Addresses
from sql.connect import Connection, DeadlinePassed, connect
from tests.support.database import Database
from tests.support.proxy import MakeProxy

PATIENCE = timedelta(seconds=2)


@pytest.mark.parametrize(
    ("given", "hosts", "ports"),
    [
        ("postgresql://me:x%20y@one,two,three/mine?target_session_attrs=read-write", "two,one,three", None),
        ("postgresql://me@one:7,two:8,three:9/mine", "two,one,three", "8,7,9"),
        ("host=one,two,three port=7 user=me dbname=mine", "two,one,three", "7,7,7"),
        ("host=one,two port=5432,5432 user=me dbname=mine options=-cjit=off", "two,one", "5432,5432"),
    ],
)
def test_the_address_that_answered_goes_first_and_nothing_else_changes(
    given: str, hosts: str, ports: str | None
) -> None:
    known = Addresses()

    known.answered(given, Address("two", "10.0.0.2", (ports or "5432").split(",")[0]))

    ordered = conninfo_to_dict(known.in_order(given))
    assert ordered.pop("host") == hosts
    assert (str(ordered.pop("port", "")).strip(",") or None) == ports
    before = conninfo_to_dict(given)
    assert ordered == {name: value for name, value in before.items() if name not in {"host", "port"}}


def hosts_in_order(known: Addresses, given: str) -> object:
    return conninfo_to_dict(known.in_order(given))["host"]


def test_an_address_to_shun_goes_last_until_it_answers_again() -> None:
    given = "postgresql://me@one,two,three/mine"
    one, two = Address("one", "10.0.0.1", "5432"), Address("two", "10.0.0.2", "5432")
    known = Addresses()
    known.answered(given, two)

    known.shun(given, two)
    assert hosts_in_order(known, given) == "one,three,two"

    known.answered(given, two)
    assert hosts_in_order(known, given) == "two,one,three"

    # The first of the list too: a primary that was replaced and does not know.
    known.shun(given, one)
    assert hosts_in_order(known, given) == "two,three,one"


def test_entries_that_share_a_name_are_told_apart_by_their_addresses() -> None:
    given = "host=db,db hostaddr=10.0.0.1,10.0.0.2 dbname=mine"
    known = Addresses()

    known.answered(given, Address("db", "10.0.0.2", "5432"))

    assert conninfo_to_dict(known.in_order(given))["hostaddr"] == "10.0.0.2,10.0.0.1"


@pytest.mark.parametrize("given", ["host=one dbname=mine", "dbname=mine", "postgresql:///mine", ""])
def test_a_single_address_stays_as_it_is(given: str) -> None:
    known = Addresses()

    known.answered(given, Address("one", "10.0.0.1", "5432"))
    known.shun(given, Address("one", "10.0.0.1", "5432"))

    assert known.in_order(given) == given


def accepted(listener: socket.socket) -> int:
    """Return how many have come since this was asked last."""
    count = 0
    listener.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            listener.accept()[0].close()
            count += 1
    return count


def test_only_the_first_session_waits_for_an_address_that_is_silent(database: Database) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"{database.url}".replace("@", f"@127.0.0.1:{silent.getsockname()[1]},")

        tried = []
        for _ in range(3):
            connect(url, name="test", connect_timeout=PATIENCE, statement_timeout=PATIENCE).close()
            tried.append(accepted(silent))

    assert tried == [1, 0, 0]


def test_an_address_whose_session_fell_silent_is_not_the_first_any_more(database: Database, proxy: MakeProxy) -> None:
    way = proxy("127.0.0.1", database.server.port)
    with socket.create_server(("127.0.0.1", 0)) as refusing:
        port = refusing.getsockname()[1]
    url = way.url_for(database.url).replace("@", f"@127.0.0.1:{port},")
    connection = Connection.connect(url, connect_timeout=2)
    connection.patience = 0.2
    way.mute_open()
    with pytest.raises(DeadlinePassed):
        connection.execute("select 1")

    with socket.create_server(("127.0.0.1", port)) as silent:
        Connection.connect(url, connect_timeout=2).close()

        assert accepted(silent) == 1
