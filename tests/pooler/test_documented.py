"""docs/pgbouncer.md shows what these tests run, and what it says of PgBouncer itself is so."""

import re
from configparser import ConfigParser

import psycopg
import pytest

from tests.pooler.bouncer import SETTINGS, Bouncer
from tests.pooler.test_webs import every_server_connection_taken
from tests.support.program import ROOT
from tests.support.waiting import wait_until

pytestmark = pytest.mark.scale


def test_the_documented_ini_is_the_one_that_is_tested() -> None:
    text = (ROOT / "docs/pgbouncer.md").read_text(encoding="utf-8")
    shown = re.findall(r"```ini\n(.*?)```", text, re.DOTALL)
    parser = ConfigParser()

    parser.read_string("".join(shown))

    assert dict(parser["pgbouncer"]) == SETTINGS


def test_what_is_set_is_not_so_as_delivered(bouncer: Bouncer) -> None:
    assert bouncer.console("show version")[0]["version"].startswith("PgBouncer 1.18")
    config = {row["key"]: row["default"] for row in bouncer.console("show config")}

    assert (config["server_login_retry"], config["query_wait_timeout"]) == ("15", "120")
    assert config["ignore_startup_parameters"] == ""


def test_a_client_that_gives_up_is_not_noticed_before_there_is_a_connection_for_it(bouncer: Bouncer) -> None:
    bouncer.write_settings(query_wait_timeout="120")
    bouncer.console("reload")

    def waiting() -> int:
        return sum(pool["cl_waiting"] for pool in bouncer.console("show pools"))

    with every_server_connection_taken(bouncer):
        client = psycopg.connect(bouncer.url, autocommit=True)
        client.pgconn.send_query(b"select 1")
        client.pgconn.flush()
        wait_until(lambda: waiting() == 1, "it waits")
        client.close()

        assert [waiting() for _ in range(20)] == [1] * 20
    wait_until(lambda: waiting() == 0, "it is noticed")
