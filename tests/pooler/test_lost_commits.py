"""A COMMIT that is lost behind PgBouncer: settled through PgBouncer too, once the first transaction has ended."""

import threading

import pytest

from tests.pooler.bouncer import Bouncer
from tests.support.committing import WAITING, committing
from tests.support.faults import AT_COMMIT, insert_fault
from tests.support.proxy import MakeProxy
from tests.support.server import TestServer
from tests.support.service import Service, Submitted
from tests.support.waiting import wait_until

pytestmark = pytest.mark.scale

PATIENT: dict[str, str | None] = {"TALLY_REQUEST_SECONDS": "20"}


def in_commit(service: Service) -> int:
    pid = service.database.value("select pid from pg_locks where locktype = 'advisory' and not granted")
    assert isinstance(pid, int)
    return pid


def await_settlement(service: Service) -> None:
    """Wait until two wait: the COMMIT for its gate, and the settlement for the queue's lock."""
    service.web.wait_for("admission.outcome_unknown")
    wait_until(lambda: service.database.value(WAITING) == 2, "the settlement waits for the first transaction")


def reconciled(service: Service, answers: list[Submitted], status: int) -> None:
    assert [answer.status for answer in answers] == [status]
    service.web.wait_for(f"admission.settled tasks=1 made={int(status == 202)}")
    service.await_recovery()
    service.await_all()
    service.reconcile()


def test_a_commit_whose_pooler_was_killed_is_settled_through_the_next_one(service: Service, bouncer: Bouncer) -> None:
    service.start(env=PATIENT)
    service.accepted()

    with committing(service) as answers:
        bouncer.kill()
        bouncer.start()
        await_settlement(service)

    reconciled(service, answers, 202)


def test_a_commit_whose_session_is_stranded_behind_the_pooler_is_waited_for(
    service: Service, bouncer: Bouncer, server: TestServer, proxy: MakeProxy
) -> None:
    """The web has gone, PgBouncer has closed, and the server has not heard of it: its transaction is open still."""
    between = proxy("127.0.0.1", server.port)
    bouncer.target = between.port
    bouncer.write_settings()
    bouncer.console("reload")
    service.start(env={"TALLY_REQUEST_SECONDS": "6"})
    service.accepted()

    with committing(service) as answers:
        between.strand()
        await_settlement(service)

    reconciled(service, answers, 202)


def test_a_commit_whose_backend_is_terminated_behind_the_pooler_is_settled(service: Service) -> None:
    service.start(env=PATIENT)
    service.accepted()

    with committing(service) as answers:
        service.database.value("select pg_terminate_backend(%s)", (in_commit(service),))
        service.web.wait_for("admission.settled")

    reconciled(service, answers, 503)


def test_a_commit_whose_database_is_killed_in_the_console_is_settled(service: Service, bouncer: Bouncer) -> None:
    """PgBouncer says FATAL, with a code that a living connection may bring as well."""
    service.start(env=PATIENT)
    service.accepted()

    with committing(service) as answers:
        bouncer.console(f"kill {bouncer.database}")
        service.web.wait_for("admission.outcome_unknown")
        bouncer.console(f"resume {bouncer.database}")
        await_settlement(service)

    reconciled(service, answers, 202)


def test_a_commit_whose_server_was_killed_behind_the_pooler_is_settled_when_it_is_back(
    service: Service, server: TestServer
) -> None:
    service.start(env=PATIENT)
    service.accepted()

    with committing(service) as answers:
        server.kill()
        service.web.wait_for("admission.outcome_unknown")
        server.start()
        service.web.wait_for("admission.settled")

    reconciled(service, answers, 503)


def test_a_commit_in_a_pooler_that_freezes_is_settled_when_it_thaws(service: Service, bouncer: Bouncer) -> None:
    service.start(env={"TALLY_REQUEST_SECONDS": "6"})
    service.accepted()

    with committing(service) as answers:
        bouncer.freeze()
        service.web.wait_for("admission.outcome_unknown")
        bouncer.thaw()
        await_settlement(service)

    reconciled(service, answers, 202)


def test_what_a_frozen_pooler_does_not_tell_in_time_is_504_and_found_by_its_key(
    service: Service, bouncer: Bouncer
) -> None:
    service.start()
    service.accepted()
    answers: list[Submitted] = []
    with insert_fault(service.database, AT_COMMIT, "perform pg_sleep(0.5)"):
        client = threading.Thread(target=lambda: answers.append(service.submit(marker="once", key="k", bad=True)))
        client.start()
        asleep = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'"
        wait_until(lambda: service.database.value(asleep) == 1, "COMMIT is under way")
        bouncer.freeze()
        client.join(20)
    made = service.database.value("select id from tally.task where idempotency_key = 'k'")

    bouncer.thaw()

    assert [(answer.status, answer.code) for answer in answers] == [(504, "outcome-unknown")]
    service.await_recovery()
    again = service.submit(marker="once", key="k", bad=True)
    assert (again.status, again.task) == (202, made)
    service.await_all()
    service.reconcile()
