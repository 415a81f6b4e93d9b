"""Several dispatchers on one queue: none is idle while another has a backlog, and few are woken for nothing.

No sweep comes to help: what starts a task is a wake, by name or of everybody, or a slot that was freed.
"""

import signal
from collections import Counter

from tests.support.database import Database
from tests.support.ledger import Ledger
from tests.support.program import Program
from tests.support.service import Service
from tests.support.waiting import wait_until

NO_SWEEP: dict[str, str | None] = {"TALLY_SWEEP_SECONDS": "600"}
HOLDERS = "select claimed_by, count(*) from tally.task where state = 'RUNNING' group by claimed_by"
SESSIONS = "select count(*) from pg_stat_activity where application_name like 'tally:%%'"
WAITING = "select count(*) from tally.dispatcher where waiting and stopped_at is null"


def start(service: Service, slots: int, count: int) -> list[Program]:
    """Start a web and so many dispatchers, and wait until all of them wait for tasks."""
    service.start("--slots", str(slots), env=NO_SWEEP)
    more = [service.run_dispatcher("--slots", str(slots), env=NO_SWEEP) for _ in range(count - 1)]
    await_waiting(service.database, count)
    return [service.dispatcher, *more]


def await_waiting(database: Database, count: int) -> None:
    wait_until(lambda: database.value(WAITING) == count, f"{count} dispatchers wait for tasks")


def holders(service: Service) -> Counter[str]:
    return Counter({str(holder): count for holder, count in service.database.rows(HOLDERS)})


def claims(database: Database) -> int:
    """Return how many claims were made, once the dispatchers that made them have ended; needs `track_functions`."""
    wait_until(lambda: database.value(SESSIONS) == 0, "no dispatcher has a session")
    return int(database.value("select calls from pg_stat_user_functions where funcname = 'claim_tasks'"))


def test_tasks_that_come_together_are_shared_among_all(database: Database, service: Service, ledger: Ledger) -> None:
    start(service, 1, 4)

    ledger.submit_many("gate", [{"gate": str(service.gate)} for _ in range(4)])

    wait_until(lambda: sum(holders(service).values()) == 4, "all of them run", 5, lambda: holders(service))
    assert set(holders(service).values()) == {1}
    service.gate.touch()
    assert ledger.await_all() == {"SUCCEEDED": 4}


def test_tasks_that_come_one_by_one_find_whoever_has_a_slot(service: Service) -> None:
    start(service, 2, 3)

    for running in range(1, 7):
        service.accepted("gate")
        wait_until(lambda running=running: len(service.started) == running, f"{running} run", 5)  # type: ignore[misc]

    assert sorted(holders(service).values()) == [2, 2, 2]
    service.gate.touch()
    service.await_all()
    service.reconcile()


def test_whoever_is_done_first_takes_the_rest_of_the_backlog(service: Service) -> None:
    start(service, 1, 2)
    blocked = service.accepted("gate")
    wait_until(lambda: service.started == [blocked], "one of them is busy")

    others = [service.accepted("echo") for _ in range(20)]

    for task in others:
        service.await_state(task, "SUCCEEDED")
    assert service.state(blocked) == "RUNNING"
    service.gate.touch()
    service.await_all()
    service.reconcile()


def test_a_draining_dispatcher_passes_its_wakes_on(service: Service) -> None:
    dispatchers = start(service, 4, 2)
    kept = [service.accepted("gate") for _ in range(5)]
    wait_until(lambda: len(service.started) == len(kept), "five are running", seen=lambda: holders(service))
    # The busier one leaves, so the other has free slots.
    ((busier, _),) = holders(service).most_common(1)
    (leaving,) = (each for each in dispatchers if each.saw(busier))

    leaving.send(signal.SIGTERM)
    leaving.wait_for("dispatcher.draining")

    for _ in range(2):
        service.await_state(service.accepted("echo"), "SUCCEEDED")
    assert {service.state(task) for task in kept} == {"RUNNING"}
    service.gate.touch()
    assert leaving.wait() == 0
    service.await_all()
    service.reconcile()


def test_an_idle_dispatcher_that_is_stopped_passes_its_wake_on(service: Service) -> None:
    leaving, _ = start(service, 4, 2)
    leaving.freeze()
    # So that it is the one to be woken.
    latest = "update tally.dispatcher set beaten_at = clock_timestamp() + interval '1 minute' where pid = %s"
    service.database.execute(latest, (leaving.pid,))
    task = service.accepted("echo")

    leaving.send(signal.SIGTERM)
    leaving.send(signal.SIGCONT)

    assert leaving.wait() == 0
    service.await_state(task, "SUCCEEDED")
    service.reconcile()


def test_one_submit_costs_about_one_claim_however_many_wait(service: Service) -> None:
    submits, count = 20, 4
    service.database.execute(f"alter database {service.database.name} set track_functions = 'pl'")
    dispatchers = start(service, 2, count)
    for _ in range(submits):
        service.await_state(service.accepted("echo"), "SUCCEEDED")

    assert [each.stop() for each in dispatchers] == [0] * count

    # Besides, each looks a few times as it comes: at its start, when it listens, and once more after it waits.
    assert submits <= claims(service.database) <= submits + 5 * count
    service.reconcile()


def test_a_submit_is_found_though_the_one_that_was_woken_for_it_is_gone(service: Service) -> None:
    first, second = start(service, 1, 2)
    for each in (first, second):
        each.send(signal.SIGSTOP)
    beaten = "select count(*) from tally.dispatcher where beaten_at > now() - interval '0.1 s'"
    wait_until(lambda: service.database.value(beaten) == 0, "neither beats")
    second.send(signal.SIGCONT)
    wait_until(lambda: service.database.value(beaten) == 1, "the second beats again")

    service.await_state(service.accepted("echo"), "SUCCEEDED")

    first.send(signal.SIGCONT)
    assert (first.stop(), second.stop()) == (0, 0)
    service.reconcile()
