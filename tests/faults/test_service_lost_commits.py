"""The reply to a submit's COMMIT is lost: 202 if it was committed, 503 if not, 504 only while nobody can be asked."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.committing import committing
from tests.support.faults import AT_COMMIT, insert_fault
from tests.support.proxy import MakeProxy, Proxy
from tests.support.server import TestServer
from tests.support.service import Service, Submitted
from tests.support.waiting import wait_until


@contextmanager
def answer_lost_within(service: Service, forwarder: Proxy) -> Iterator[list[Submitted]]:
    """Submit, and hold the server's COMMIT back until the end, when the proxy has no ear for its reply.

    Yields a list that has the answer in it after the end.
    """
    with committing(service) as answers:
        forwarder.mute_open()
        yield answers


def through(forwarder: Proxy, service: Service, seconds: float = 2.5) -> dict[str, str | None]:
    """Return an environment in which the web, and it alone, reaches the database through the proxy."""
    return {
        "DATABASE_URL": forwarder.url_for(service.database.url),
        "DATABASE_DIRECT_URL": service.database.url,
        "TALLY_REQUEST_SECONDS": str(seconds),
    }


def test_a_submit_that_was_committed_is_202_though_the_reply_never_came(
    service: Service, server: TestServer, proxy: MakeProxy
) -> None:
    forwarder = proxy("127.0.0.1", server.port)
    service.start(env=through(forwarder, service))
    service.accepted()

    with answer_lost_within(service, forwarder) as answers:
        pass

    assert [answer.status for answer in answers] == [202]
    assert service.web.saw("admission.settled tasks=1 made=1")
    service.await_all()
    service.reconcile()


def test_after_a_crash_that_hands_ids_out_again_a_stranger_s_task_is_not_taken_for_ours(
    service: Service, server: TestServer, proxy: MakeProxy
) -> None:
    forwarder = proxy("127.0.0.1", server.port)
    service.start(env=through(forwarder, service, seconds=20))
    known = service.accepted()
    service.await_all()

    with answer_lost_within(service, forwarder) as answers:
        forwarder.refuse()
        server.kill()
        server.start()
        # The next id again, as after a crash that lost the sequence's own log.
        service.database.execute(f"alter table tally.task alter column id restart with {known + 1}")
        stranger = service.database.value(
            "insert into tally.task (token, queue, kind, input)"
            " values (gen_random_uuid(), 'default', 'echo', '{\"marker\": \"stranger\"}') returning id"
        )
        forwarder.cut()
        forwarder.accept()

    assert stranger == known + 1
    assert [(answer.status, answer.code) for answer in answers] == [(503, "database-away")]
    assert service.web.saw("admission.settled tasks=1 made=0")
    service.book.append(Submitted("stranger", 202, None, stranger, 0.0))
    service.await_recovery()
    service.await_all()
    service.reconcile()


def test_what_nobody_can_be_asked_about_is_504_and_found_again_by_its_key(
    service: Service, server: TestServer, proxy: MakeProxy
) -> None:
    forwarder = proxy("127.0.0.1", server.port)
    service.start(env=through(forwarder, service))
    service.accepted()
    with insert_fault(service.database, AT_COMMIT, "perform pg_sleep(0.5)"):
        answers: list[Submitted] = []
        client = threading.Thread(target=lambda: answers.append(service.submit(marker="once", key="k", bad=True)))
        client.start()
        asleep = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'"
        wait_until(lambda: service.database.value(asleep) == 1, "COMMIT is under way")
        forwarder.mute()
        forwarder.refuse()
        client.join(20)

    assert [(answer.status, answer.code) for answer in answers] == [(504, "outcome-unknown")]
    made = service.database.value("select id from tally.task where idempotency_key = 'k'")
    forwarder.cut()
    forwarder.accept()
    forwarder.thaw()

    service.await_recovery()
    again = service.submit(marker="once", key="k", bad=True)
    assert (again.status, again.task) == (202, made)
    service.await_all()
    service.reconcile()
