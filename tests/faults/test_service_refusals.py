"""A submit whose transaction fails half-way: nothing of it is left, and nobody else's is touched."""

import threading
from pathlib import Path

import pytest

from tests.support.faults import AFTER_INSERT, AT_COMMIT, BEFORE_INSERT, insert_fault
from tests.support.service import Service, Submitted
from tests.support.waiting import wait_until


@pytest.mark.parametrize("moment", [BEFORE_INSERT, AFTER_INSERT, AT_COMMIT], ids=["before", "after", "commit"])
def test_a_submit_that_the_database_refuses_leaves_nothing(service: Service, moment: str) -> None:
    service.start()
    listener = service.database.connect("test-listener")
    listener.execute("listen tally_work")

    with insert_fault(service.database, moment, "raise exception 'it is bad'"):
        refused = service.submit(bad=True)

    assert (refused.status, refused.code) == (422, "invalid-input")
    assert service.database.value("select count(*) from tally.task") == 0
    assert list(listener.notifies(timeout=0)) == []
    service.accepted()
    service.await_all()
    service.reconcile()


def test_a_submit_whose_connection_dies_before_its_commit_leaves_nothing(service: Service) -> None:
    service.start()
    service.accepted()

    with insert_fault(service.database, AFTER_INSERT, "perform pg_terminate_backend(pg_backend_pid())"):
        refused = service.submit(bad=True)

    assert (refused.status, refused.code) == (503, "database-away")
    service.await_recovery()
    service.await_all()
    service.reconcile()


def test_one_bad_row_of_a_batch_is_refused_alone(service: Service) -> None:
    service.start()
    old = len(service.database.server.log)
    holder = service.database.connect("test-holder")
    holder.execute("select pg_advisory_lock(tally.queue_lock_key('default'))")
    first = threading.Thread(target=service.submit)
    first.start()
    waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
    wait_until(lambda: service.database.value(waiting) == 1, "the first batch waits for the queue")
    answers: list[Submitted] = []
    members = [{"bad": True} if number == 3 else {} for number in range(8)]
    others = [threading.Thread(target=lambda each=each: answers.append(service.submit(**each))) for each in members]

    with insert_fault(service.database, BEFORE_INSERT, "raise exception 'it is bad'"):
        for thread in others:
            thread.start()
        await_handed_over(service, len(others))
        holder.execute("select pg_advisory_unlock_all()")
        for thread in (first, *others):
            thread.join(20)

    assert sorted(answer.status for answer in answers) == [202] * 7 + [422]
    # A batch of eight is refused, then four of it, two and one; alone it would have been refused once.
    assert service.database.server.log[old:].count("ERROR:  it is bad") >= 3
    service.await_all()
    service.reconcile()


def await_handed_over(service: Service, count: int) -> None:
    """Wait until so many submits have been read and wait behind the one that waits for the queue."""
    address = f"{service.web.address[1]:04X}"

    def connections() -> int:
        lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
        ours = [line.split() for line in lines if line.split()[1].endswith(":" + address)]
        return sum(each[3] == "01" and each[4].endswith(":00000000") for each in ours)

    wait_until(lambda: connections() == count + 1, "every request was read", seen=connections)
    for _ in range(3):
        # Asked after them and answered, by threads that were free: theirs have gone as far as they can.
        assert service.read(4711) == 404
