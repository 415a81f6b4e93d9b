"""The service stopped and started again on the same database."""

import socket
from signal import SIGTERM

import pytest

from tests.support.service import Service
from tests.support.waiting import wait_until


def test_after_a_stop_both_ports_can_be_bound_at_once_and_old_ids_are_there(service: Service) -> None:
    service.start()
    task = service.submit_text("Go one").task
    assert task is not None
    ended = service.api.follow(task)
    (host, port), (_, admin) = service.web.address, service.web.admin
    with socket.create_connection(service.web.address), socket.create_connection(service.web.admin):
        # Connections that the server has to close are what would keep its ports busy.
        assert (service.web.stop(), service.dispatcher.stop()) == (0, 0)

        service.web = service.run_program("falcon_app", "--listen", f"{host}:{port}", "--admin", f"{host}:{admin}")
    service.dispatcher = service.run_dispatcher()

    assert (service.web.address, service.web.admin) == ((host, port), (host, admin))
    answer = service.api.get(f"/tasks/{task}")
    assert (answer.status, answer.json()["state"]) == (200, "SUCCEEDED")
    assert answer.json() == ended
    assert service.api.follow(service.accepted())["state"] == "SUCCEEDED"
    assert service.probe("/readyz") == 200
    service.reconcile()


def test_http_closed_is_not_workers_done(service: Service) -> None:
    service.start()
    task = service.accepted("gate")
    wait_until(lambda: service.started == [task], "the body has started")

    assert service.web.stop() == 0
    with pytest.raises(ConnectionRefusedError):
        service.api.get(f"/tasks/{task}")
    service.dispatcher.send(SIGTERM)
    service.dispatcher.wait_for("dispatcher.draining")
    assert service.state(task) == "RUNNING"
    service.gate.touch()

    assert service.dispatcher.wait() == 0
    assert service.state(task) == "SUCCEEDED"
    service.reconcile()


def test_what_was_accepted_while_nothing_ran_is_run_by_the_next_dispatcher(service: Service) -> None:
    service.start()
    assert service.dispatcher.stop() == 0
    tasks = [service.accepted() for _ in range(5)]
    assert service.web.stop() == 0
    assert {service.state(task) for task in tasks} == {"QUEUED"}

    service.start()

    assert [service.api.follow(task)["state"] for task in tasks] == ["SUCCEEDED"] * 5
    service.reconcile()
