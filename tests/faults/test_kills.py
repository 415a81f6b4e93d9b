"""SIGKILL at random moments under load: dispatcher, web, both, and now and then PostgreSQL with them."""

import os
import random
import secrets
from collections.abc import Callable

import pytest

from tests.support.server import TestServer
from tests.support.service import Service
from tests.support.waiting import wait_until

REASONS = {"process exited before worker completion", "dispatcher lost before worker completion"}
LONGEST = 60
"""Submissions between two kills."""

Kill = Callable[[Service, TestServer], None]


def kill_dispatcher(service: Service, server: TestServer) -> None:
    service.dispatcher.kill()
    # Not waited for: the next kill may come while it starts.
    service.dispatcher = service.run_dispatcher("--slots", "4", ready=False)


def kill_web(service: Service, server: TestServer) -> None:
    service.web.kill()
    service.web = service.run_program("falcon_app")


def kill_both(service: Service, server: TestServer) -> None:
    service.web.kill()
    kill_dispatcher(service, server)
    service.web = service.run_program("falcon_app")


def kill_everything(service: Service, server: TestServer) -> None:
    server.kill()
    service.web.kill()
    service.dispatcher.kill()
    server.start()
    service.dispatcher = service.run_dispatcher("--slots", "4", ready=False)
    service.web = service.run_program("falcon_app")


@pytest.mark.parametrize("rounds", [1, pytest.param(9, marks=pytest.mark.long)])
def test_whatever_is_killed_and_when_the_ledger_reconciles(service: Service, server: TestServer, rounds: int) -> None:
    seed = os.environ.get("TALLY_TEST_SEED") or secrets.token_hex(4)
    print(f"TALLY_TEST_SEED={seed}")
    chance = random.Random(seed)
    kills: list[Kill] = [*[kill_dispatcher] * 4, *[kill_web] * 3, *[kill_both] * 3, *[kill_everything] * 2] * rounds
    chance.shuffle(kills)
    service.start("--slots", "4")

    with service.load(service.accepted(), clients=6, pause=0.005):
        for kill in kills:
            for _ in range(3):
                service.submit("sleep", seconds=chance.uniform(0, 0.5), stubborn=True)
            enough = len(accepted(service)) + chance.randint(1, LONGEST)
            wait_until(lambda enough=enough: len(accepted(service)) >= enough, "the load goes on")  # type: ignore[misc]
            kill(service, server)

    service.dispatcher.wait_ready()
    service.await_all(60)
    service.reconcile()
    ends = dict(
        service.database.rows("select state, array_agg(distinct error ->> 'reason') from tally.task group by 1")
    )
    assert set(ends) == {"SUCCEEDED", "FAILED"}, "some kills found bodies running"
    assert set(ends["FAILED"]) <= REASONS
    succeeded = {task for (task,) in service.database.rows("select id from tally.task where state = 'SUCCEEDED'")}
    assert succeeded <= set(service.started)
    assert service.database.value("select max(attempt) from tally.task") == 1
    assert (service.web.stop(), service.dispatcher.stop()) == (0, 0)


def accepted(service: Service) -> list[int]:
    return [entry.task for entry in list(service.book) if entry.status == 202 and entry.task is not None]
