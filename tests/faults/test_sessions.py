"""The session's backend terminated, cut off, stranded: it comes back, listens and looks; nobody is dead for that."""

from time import monotonic

from tests.support.database import Database
from tests.support.program import SETTINGS, Program, RunDispatcher
from tests.support.proxy import MakeProxy
from tests.support.server import TestServer
from tests.support.service import Service, resident_bytes
from tests.support.waiting import wait_until

# So that only what is heard, or looked for after a reconnect, can start a task.
NO_SWEEP: dict[str, str | None] = {"TALLY_SWEEP_SECONDS": "600"}
SESSIONS = "from pg_stat_activity where application_name like 'tally:%%:session'"


def end_sessions(database: Database) -> int:
    """Terminate the backend of every dispatcher's session; return how many there were."""
    return int(database.value(f"select count(pg_terminate_backend(pid, 5000)) {SESSIONS}"))


def listens(dispatcher: Program) -> int:
    """How often a dispatcher's session has come to listen."""
    return dispatcher.output.count("session.listening")


def test_sessions_ended_over_and_over_while_tasks_run_cost_nobody_anything(service: Service) -> None:
    service.start("--slots", "2", env=NO_SWEEP)
    other = service.run_dispatcher("--slots", "2", env=NO_SWEEP)
    gates = [service.accepted("gate") for _ in range(3)]
    wait_until(lambda: len(service.started) == 3, "both have bodies that run")
    grace = float(SETTINGS["TALLY_GRACE_SECONDS"])
    began = monotonic()

    while monotonic() - began < grace + 1:
        seen = [listens(each) for each in (service.dispatcher, other)]
        assert end_sessions(service.database) == 2
        task = service.accepted()
        assert service.api.follow(task)["state"] == "SUCCEEDED"
        wait_until(
            lambda seen=seen: all(  # type: ignore[misc]
                now > before for now, before in zip([listens(service.dispatcher), listens(other)], seen, strict=True)
            ),
            "both listen again",
        )

    assert service.database.value("select count(*) from tally.dispatcher where stopped_at is not null") == 0
    service.gate.touch()
    assert {service.api.follow(task)["state"] for task in gates} == {"SUCCEEDED"}
    assert (service.dispatcher.stop(), other.stop()) == (0, 0)
    service.reconcile()


def test_after_a_restart_of_the_database_tasks_are_heard_of_as_before(service: Service, server: TestServer) -> None:
    service.start(env=NO_SWEEP)
    service.api.follow(service.accepted())
    server.stop()
    service.dispatcher.wait_for("session.lost")

    server.start()

    wait_until(lambda: listens(service.dispatcher) == 2, "the session listens again")
    service.await_recovery()
    for _ in range(50):
        assert service.api.follow(service.accepted())["state"] == "SUCCEEDED"
    service.await_all()
    service.reconcile()


def test_a_session_stranded_without_a_word_is_left_within_a_call(
    service: Service, run_dispatcher: RunDispatcher, proxy: MakeProxy
) -> None:
    way = proxy("127.0.0.1", service.database.server.port)
    service.start(
        env={**NO_SWEEP, "TALLY_STATEMENT_SECONDS": "0.5", "DATABASE_DIRECT_URL": way.url_for(service.database.url)}
    )
    service.api.follow(service.accepted())

    way.strand()
    end_sessions(service.database)
    task = service.accepted()

    assert service.api.follow(task)["state"] == "SUCCEEDED"
    assert listens(service.dispatcher) >= 2
    assert service.dispatcher.stop() == 0
    service.reconcile()


def test_a_cancel_accepted_while_nobody_listens_is_obeyed(service: Service) -> None:
    service.start()
    for _ in range(3):
        task = service.accepted("sleep", seconds=600)
        service.await_state(task, "RUNNING")
        end_sessions(service.database)

        assert service.api.cancel(task).status == 202

        assert service.api.follow(task, seconds=5)["error"]["detail"] == "stopped"
    service.reconcile()


def test_a_flood_of_notifications_while_every_slot_is_busy_costs_neither_memory_nor_the_next_task(
    service: Service,
) -> None:
    service.start("--slots", "1", env=NO_SWEEP)
    busy = service.accepted("gate")
    wait_until(lambda: service.started == [busy], "the slot is busy")
    flood = (
        "do $$ begin for n in 1..20000 loop"
        " perform pg_notify('tally_work', 'n' || n); perform pg_notify('tally_cancel', ''); commit;"
        " end loop; end $$"
    )
    service.database.execute(flood)
    before = resident_bytes(service.dispatcher)
    for _ in range(6):
        service.database.execute(flood)
    waiting = service.accepted()

    service.gate.touch()

    assert [service.api.follow(task)["state"] for task in (busy, waiting)] == ["SUCCEEDED"] * 2
    # What is being read takes some; a quarter of a million notifications that are kept would take more.
    wait_until(
        lambda: resident_bytes(service.dispatcher) - before < 24 * 1024 * 1024,
        "the notifications are gone",
        seen=lambda: resident_bytes(service.dispatcher) - before,
    )
    service.reconcile()
