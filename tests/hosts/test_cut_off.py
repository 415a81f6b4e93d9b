"""One host of several is cut off, its packets dropped and nothing closed: the others go on, and it does no harm."""

from collections.abc import Callable
from time import monotonic
from typing import Any

import pytest

from tests.hosts.network import Host, Network
from tests.support.program import SETTINGS, Program
from tests.support.service import DEADLINE, SLACK, Service
from tests.support.waiting import outlast, wait_until

pytestmark = pytest.mark.scale

GRACE = float(SETTINGS["TALLY_GRACE_SECONDS"])
STALL = 5
SHORT: dict[str, str | None] = {"TALLY_STATEMENT_SECONDS": "0.5", "TALLY_STALL_SECONDS": str(STALL)}
NOTICES = 3
"""Seconds after which a server with these settings gives a silent client up."""
KEEPALIVES = {
    "tcp_keepalives_idle": 1,
    "tcp_keepalives_interval": 1,
    "tcp_keepalives_count": 2,
    "tcp_user_timeout": 1000 * NOTICES,
}

Cut = Callable[[str], Host]


@pytest.fixture
def cut(network: Network, cut_off: list[Host]) -> Cut:
    """Cut a host off; it is mended at the end."""

    def cut(name: str) -> Host:
        host = network[name]
        host.cut()
        cut_off.append(host)
        return host

    return cut


@pytest.fixture
def mend(cut_off: list[Host]) -> Callable[[Host], None]:
    def mend(host: Host) -> None:
        cut_off.remove(host)
        host.mend()

    return mend


Mend = Callable[[Host], None]


def start(service: Service, network: Network, env: dict[str, str | None]) -> tuple[Program, Program, list[int]]:
    """Start web and, each on its host, two dispatchers; the tasks are those whose bodies the first one runs."""
    service.web = service.run_program("falcon_app", env=env)
    with network["first"].namespace.entered():
        first = service.run_dispatcher("--slots", "2", env=env)
    tasks = [service.accepted("gate") for _ in range(2)]
    wait_until(lambda: sorted(service.started) == tasks, "their bodies have started")
    with network["second"].namespace.entered():
        second = service.run_dispatcher("--slots", "2", env=env)
    assert service.database.value("select count(distinct network_namespace) from tally.dispatcher") == 2
    return first, second, tasks


def rows(service: Service, tasks: list[int]) -> list[Any]:
    return service.database.rows("select * from tally.task where id = any (%s) order by id", (tasks,))


def await_end(service: Service, tasks: list[int]) -> dict[str, Any]:
    """Wait until these have failed alike; return the error of the first."""
    ends = [service.api.follow(task, seconds=40) for task in tasks]
    assert {end["state"] for end in ends} == {"FAILED"}
    error: dict[str, Any] = ends[0]["error"]
    return error


@pytest.mark.parametrize("server_notices", [False, True])
def test_a_dispatcher_that_is_cut_off_is_lost_and_does_no_harm_when_it_is_back(
    service: Service, network: Network, cut: Cut, mend: Mend, *, server_notices: bool
) -> None:
    env = SHORT
    if server_notices:
        env = {**SHORT, "TALLY_STALL_SECONDS": "60"}
        for name, value in KEEPALIVES.items():
            service.database.execute(f"alter database {service.database.name} set {name} = {value}")
    first, second, tasks = start(service, network, env)
    began = monotonic()
    host = cut("first")

    # The others serve meanwhile; the bodies there end, and it tries in vain to say so.
    assert service.api.follow(service.accepted())["state"] == "SUCCEEDED"
    service.gate.touch()
    error = await_end(service, tasks)
    seconds = monotonic() - began
    print(f"lost after {seconds:.1f} s")

    assert error["reason"] == "dispatcher lost before worker completion"
    if server_notices:
        assert "; (b) lost: its lock is free" in error["detail"]
        assert GRACE < seconds < NOTICES + GRACE + 3 + SLACK
    else:
        assert "; (c) frozen or cut off: its lock was held" in error["detail"]
        assert STALL - 1 < seconds < STALL + 2 + SLACK
    lost = rows(service, tasks)
    assert first.saw("session.lost")
    assert first.running
    mend(host)
    assert first.wait() == 1
    assert first.saw("dispatcher.condemned")
    assert rows(service, tasks) == lost, "it wrote something when it was back"
    assert service.api.follow(service.accepted())["state"] == "SUCCEEDED"
    assert (service.web.stop(), second.stop()) == (0, 0)
    service.reconcile()


def test_a_dispatcher_that_is_back_within_the_grace_period_goes_on(
    service: Service, network: Network, cut: Cut, mend: Mend
) -> None:
    first, second, tasks = start(service, network, SHORT)
    listened = first.output.count("session.listening")
    host = cut("first")
    first.wait_for("session.lost")
    service.gate.touch()
    outlast(1)

    mend(host)

    assert [service.api.follow(task)["state"] for task in tasks] == ["SUCCEEDED"] * 2
    wait_until(lambda: first.output.count("session.listening") > listened, "its session is back")
    more = [service.accepted() for _ in range(10)]
    assert {service.api.follow(task)["state"] for task in more} == {"SUCCEEDED"}
    assert not second.saw("dispatcher.condemned")
    assert (service.web.stop(), first.stop(), second.stop()) == (0, 0, 0)
    service.reconcile()


def test_a_web_that_is_cut_off_refuses_in_time_and_is_back_without_a_restart(
    service: Service, network: Network, cut: Cut, mend: Mend
) -> None:
    first, second, tasks = start(service, network, {})

    with service.load(tasks[0], clients=4):
        wait_until(lambda: len(service.book) > 20, "the service is under load")
        host = cut("web")
        end = monotonic() + 5
        service.gate.touch()
        wait_until(lambda: monotonic() > end and service.probe("/readyz") == 503, "requests were refused for a while")
        assert service.probe("/healthz") == 200
        # Dispatchers need no web.
        wait_until(lambda: {service.state(task) for task in tasks} == {"SUCCEEDED"}, "what ran has ended")
        mend(host)
        service.await_recovery()

    assert {entry.status for entry in service.book} <= {202, 503, 504}
    assert service.slowest() < DEADLINE + SLACK
    service.await_all()
    assert (service.web.stop(), first.stop(), second.stop()) == (0, 0, 0)
    service.reconcile()
