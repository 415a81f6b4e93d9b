"""The worst outages that the search of tests/dispatcher/test_outages.py finds, with real processes and a real server.

Worst is what leaves the least room: a judge that is back at once, others just before their grace period is over.
"""

from collections.abc import Callable
from time import monotonic

import pytest

from tests.support.bodies import Bodies
from tests.support.faults import read_only
from tests.support.program import SETTINGS, Program, RunDispatcher
from tests.support.proxy import MakeProxy
from tests.support.server import TestServer
from tests.support.waiting import outlast, wait_until

STALL = 5
GRACE = float(SETTINGS["TALLY_GRACE_SECONDS"])
SHORT = {"TALLY_STATEMENT_SECONDS": "0.5", "TALLY_STALL_SECONDS": str(STALL)}
MARGIN = 1.5
"""Seconds, for a busy machine: so much before the end of the grace period the last one may connect again."""


def stop(server: TestServer) -> Callable[[], None]:
    server.stop("immediate")
    return server.start


def freeze(server: TestServer) -> Callable[[], None]:
    server.freeze()
    return server.thaw


def listens(dispatcher: Program) -> int:
    return dispatcher.output.count("session.listening")


@pytest.mark.parametrize(
    ("away", "seconds"),
    [
        pytest.param(stop, 1, id="stopped for as long as a beat"),
        pytest.param(freeze, 3, id="frozen for longer than any call"),
        pytest.param(stop, 2 * STALL, id="stopped for twice the stall limit", marks=pytest.mark.long),
        pytest.param(freeze, 2 * STALL, id="frozen for twice the stall limit", marks=pytest.mark.long),
    ],
)
def test_whoever_is_back_just_within_the_grace_period_is_spared_and_who_died_meanwhile_is_not(
    bodies: Bodies,
    run_dispatcher: RunDispatcher,
    server: TestServer,
    mended: None,
    proxy: MakeProxy,
    away: Callable[[TestServer], Callable[[], None]],
    seconds: float,
) -> None:
    ways = [proxy("127.0.0.1", server.port) for _ in range(2)]
    url = bodies.ledger.database.url
    prompt, dies = (run_dispatcher("--slots", "1", env=SHORT) for _ in range(2))
    late = [run_dispatcher("--slots", "1", env={**SHORT, "DATABASE_DIRECT_URL": way.url_for(url)}) for way in ways]
    living = [prompt, *late]
    tasks = bodies.begin(4)
    held = "select task.id from tally.task join tally.dispatcher on dispatcher.id = claimed_by where pid = %s"
    lost = bodies.ledger.database.value(held, (dies.pid,))

    end = away(server)
    for way in ways:
        way.refuse()
        way.cut()
    dies.kill()
    outlast(seconds)
    end()
    over_at = monotonic()

    # The one long before the other, so that it is among its judges.
    for way, after in zip(ways, (0.5, GRACE - MARGIN), strict=True):
        outlast(over_at + after - monotonic())
        way.accept()
    wait_until(lambda: [listens(each) for each in late] == [2, 2], "they are back")
    assert bodies.ledger.await_end(lost)["error"]["reason"] == "process exited before worker completion"
    # Once more the grace period, in which a judge would condemn whoever it took for dead.
    outlast(GRACE)
    assert {bodies.ledger.state(task) for task in tasks if task != lost} == {"RUNNING"}
    bodies.gate.touch()
    assert {bodies.ledger.await_end(task)["state"] for task in tasks if task != lost} == {"SUCCEEDED"}
    assert not any(each.saw("why=lost") for each in living)
    assert [each.stop() for each in living] == [0, 0, 0]
    bodies.reconcile()


@pytest.mark.parametrize("seconds", [GRACE + 1, pytest.param(STALL + 5, marks=pytest.mark.long)])
def test_a_database_that_answers_and_cannot_be_written_condemns_nobody(
    bodies: Bodies, run_dispatcher: RunDispatcher, server: TestServer, seconds: float
) -> None:
    dispatchers = [run_dispatcher("--slots", "2", env=SHORT) for _ in range(4)]
    tasks = bodies.begin(8)

    with read_only(server, bodies.ledger.database):
        outlast(seconds)

    outlast(2)
    assert {bodies.ledger.state(task) for task in tasks} == {"RUNNING"}
    assert bodies.ledger.database.value("select count(*) from tally.dispatcher where stopped_at is not null") == 0
    bodies.gate.touch()
    assert {bodies.ledger.await_end(task)["state"] for task in tasks} == {"SUCCEEDED"}
    assert [each.stop() for each in dispatchers] == [0] * 4
    bodies.reconcile()
