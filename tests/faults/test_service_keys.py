"""The same request again under its Idempotency-Key: one row and the same id each time, whatever lay between."""

import threading
from signal import SIGKILL
from typing import Any

from tests.support.faults import AT_COMMIT, insert_fault
from tests.support.service import Service, Submitted, at_the_same_time
from tests.support.waiting import wait_until


def rows_under(service: Service, key: str) -> list[int]:
    return [row[0] for row in service.database.rows("select id from tally.task where idempotency_key = %s", (key,))]


def ask(service: Service, key: str, **members: Any) -> Submitted:
    return service.submit(key=key, marker=f"under {key}", **members)


def ask_until_told(service: Service, key: str, **members: Any) -> Submitted:
    """Ask until nobody's open transaction holds the key any more."""
    answers: list[Submitted] = []

    def told() -> bool:
        answers.append(ask(service, key, **members))
        return answers[-1].code != "key-in-progress"

    wait_until(told, "the key is free", seen=lambda: answers)
    return answers[-1]


def test_an_answer_that_was_lost_with_its_web_process_is_found_again(service: Service) -> None:
    service.start()
    with insert_fault(service.database, AT_COMMIT, "perform pg_sleep(0.5)"):
        lost: list[Submitted] = []
        client = threading.Thread(target=lambda: lost.append(ask(service, "k", bad=True)))
        client.start()
        asleep = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'"
        wait_until(lambda: service.database.value(asleep) == 1, "COMMIT is under way")
        service.web.send(SIGKILL)
        client.join(20)
        service.web.wait()
    assert [answer.status for answer in lost] == [0]
    service.web = service.run_program("falcon_app")

    again = ask_until_told(service, "k", bad=True)

    assert again.status == 202
    assert rows_under(service, "k") == [again.task]
    service.await_all()
    service.reconcile()


def test_a_full_queue_answers_a_key_it_knows_and_refuses_one_it_does_not(service: Service) -> None:
    service.database.execute("update tally.queue set max_open = 2")
    service.start("--slots", "1")
    first = ask(service, "k")
    assert first.status == 202
    service.await_all()
    holding = [service.accepted("gate"), service.accepted("gate")]

    again = ask(service, "k")
    other = ask(service, "l")

    assert (again.status, again.task) == (202, first.task)
    assert (other.status, other.code) == (503, "overloaded")
    assert rows_under(service, "l") == []
    service.gate.touch()
    service.await_all()
    assert {service.state(task) for task in holding} == {"SUCCEEDED"}
    service.reconcile()


def test_fifty_at_once_over_two_web_processes_make_one_task(service: Service) -> None:
    service.start()
    other = service.run_program("falcon_app")

    answers: list[Submitted] = at_the_same_time(
        *(lambda web=web: service.submit(web=web, key="k", marker="once") for web in [service.web, other] * 25)
    )

    assert {answer.status for answer in answers} == {202}
    assert {answer.task for answer in answers} == set(rows_under(service, "k"))
    assert len(rows_under(service, "k")) == 1
    service.await_all()
    assert len(service.started) == 1
    service.reconcile()


def test_two_in_one_batch_are_one_task(service: Service) -> None:
    service.start()
    service.accepted()
    holder = service.database.connect("test-holder")
    holder.execute("select pg_advisory_lock(tally.queue_lock_key('default'))")
    waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
    before = threading.Thread(target=service.submit)
    before.start()
    wait_until(lambda: service.database.value(waiting) == 1, "an admission waits for the queue")
    clients = [threading.Thread(target=lambda: ask(service, "k")) for _ in range(2)]
    for client in clients:
        client.start()
    established = "select count(*) from pg_stat_activity where application_name = 'tally-web admission'"
    assert service.database.value(established) == 1

    holder.execute("select pg_advisory_unlock_all()")
    for client in (before, *clients):
        client.join(20)

    under = [entry for entry in service.book if entry.marker == "under k"]
    assert [entry.status for entry in under] == [202, 202]
    assert {entry.task for entry in under} == set(rows_under(service, "k"))
    service.await_all()
    service.reconcile()


def test_a_key_held_by_an_open_transaction_is_503_and_holds_nobody_up(service: Service) -> None:
    service.start()
    holder = service.database.connect("test-holder")
    with holder.transaction(force_rollback=True):
        holder.execute(
            "insert into tally.task (token, queue, kind, input, idempotency_key, digest)"
            " values (gen_random_uuid(), 'default', 'echo', '{}', 'k', 'x')"
        )
        held, *others = at_the_same_time(lambda: ask(service, "k"), *([service.submit] * 20))

        assert (held.status, held.code) == (503, "key-in-progress")
        assert {other.status for other in others} == {202}

    again = ask_until_told(service, "k")
    assert again.status == 202
    assert rows_under(service, "k") == [again.task]
    service.await_all()
    service.reconcile()


def test_another_body_under_the_key_is_422_and_leaves_no_row(service: Service) -> None:
    service.start()
    first = ask(service, "k")

    other = service.submit(key="k", n=2)

    assert (other.status, other.code) == (422, "key-reused")
    assert rows_under(service, "k") == [first.task]
    service.await_all()
    service.reconcile()
