"""SIGKILL and restarts at random moments, with retries, time limits and both kinds of slots in use.

Whatever is hit, the ledger of attempts reconciles: see `tests.support.attempts.reconcile`.
"""

import http.client
import os
import random
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import pytest

from tests.support.attempts import CRASHES, MODULES, Row, reconcile, rows
from tests.support.clients import repeating
from tests.support.program import Program
from tests.support.server import TestServer
from tests.support.service import Service
from tests.support.waiting import wait_until

SLOTS: Final = ("--slots", "4")
COURSES: Final = (
    ["return"],
    ["raise", "return"],
    ["raise", "again", "return"],
    ["again", "sleep"],
    ["raise"],
    ["fail"],
    ["sleep"],
    ["insist"],
    ["insist", "return"],
)
IN_A_PROCESS: Final = (["die"], ["exit", "return"], ["die", "sleep", "return"])
KINDS: Final = [f"try.{slot}.{how}" for slot in ("thread", "process") for how in ("fail", "retry", "limited")]


class Fleet:
    """A web and two dispatchers, each of which is replaced when it is killed."""

    def __init__(self, service: Service, server: TestServer) -> None:
        self.service = service
        self.server = server
        service.web = service.run_program("falcon_app")
        self.dispatchers = [self._dispatcher(), self._dispatcher()]

    def _dispatcher(self) -> Program:
        # Not waited for: the next kill may come while it starts.
        return self.service.run_dispatcher(*MODULES, *SLOTS, ready=False)

    def kill_one(self) -> None:
        self.dispatchers.pop(0).kill()
        self.dispatchers.append(self._dispatcher())

    def kill_both(self) -> None:
        for _ in range(2):
            self.kill_one()

    def restart_the_server(self) -> None:
        self.server.stop("immediate")
        self.server.start()

    def kill_everything(self) -> None:
        self.server.kill()
        self.kill_both()
        self.server.start()

    def client(self, chance: random.Random) -> Callable[[], None]:
        """Submit tasks of all kinds and courses, and cancel some."""

        def ask() -> None:
            kind = chance.choice(KINDS)
            courses = COURSES + IN_A_PROCESS if ".process." in kind else COURSES
            self.service.submit(
                kind,
                folder=str(self.service.folder),
                acts=chance.choice(courses),
                seconds=chance.uniform(0, 0.6),
                after=chance.choice([0, 0.1, 0.5]),
            )
            task = chance.choice(self.service.book[-30:]).task
            if task is not None and chance.random() < 0.15:
                with suppress(OSError, http.client.HTTPException):
                    self.service.api.cancel(task)

        return ask


@pytest.mark.parametrize("rounds", [1, pytest.param(6, marks=pytest.mark.long)])
def test_whatever_is_killed_and_when_every_attempt_is_accounted_for(
    service: Service, server: TestServer, rounds: int
) -> None:
    seed = os.environ.get("TALLY_TEST_SEED") or secrets.token_hex(4)
    print(f"TALLY_TEST_SEED={seed}")
    chance = random.Random(seed)
    fleet = Fleet(service, server)
    # Or the load would outrun what is killed all the time, and leave minutes of work behind.
    service.database.execute("update tally.queue set max_open = 60")
    for each in fleet.dispatchers:
        each.wait_ready()
    faults = [*[fleet.kill_one] * 4, fleet.kill_both, fleet.restart_the_server, fleet.kill_everything] * rounds
    chance.shuffle(faults)

    with repeating([fleet.client(random.Random(chance.random())) for _ in range(4)], pause=0.03):
        for fault in faults:
            enough = accepted(service) + chance.randint(1, 40)
            wait_until(lambda enough=enough: accepted(service) >= enough, "the load goes on")  # type: ignore[misc]
            fault()

    for each in fleet.dispatchers:
        each.wait_ready()
    service.await_all(60)
    service.reconcile()
    reconcile(service.database, service.folder)
    assert {"SUCCEEDED", "FAILED"} <= {row.state for row in rows(service.database)}
    assert any(crashed(row) for row in rows(service.database)), "some kills found bodies running"
    assert [each.stop() for each in fleet.dispatchers] == [0, 0]


def accepted(service: Service) -> int:
    return sum(entry.status == 202 for entry in list(service.book))


def crashed(row: Row) -> bool:
    errors = [each["error"] for each in row.attempts] + [row.error]
    return any(error is not None and error["reason"].startswith(CRASHES[:2]) for error in errors)
