"""Answers at the entrance: a bad start, a bad request, and what 202 promises and does not."""

import socket
from pathlib import Path

import pytest

from tests.support.program import RunProgram
from tests.support.service import Service

# Python tells an audit hook of every address that is bound.
TELL_OF_BINDING = """
import sys
sys.addaudithook(lambda event, words: print("binds", words[1]) if event == "socket.bind" else None)
"""


@pytest.fixture
def telling(tmp_path: Path) -> dict[str, str | None]:
    """An environment in which a program prints every address that it binds."""
    (tmp_path / "sitecustomize.py").write_text(TELL_OF_BINDING)
    return {"PYTHONPATH": str(tmp_path)}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def test_an_admin_address_that_is_not_loopback_is_refused_before_anything_listens(
    run_program: RunProgram, telling: dict[str, str | None]
) -> None:
    port = free_port()

    refused = run_program(
        "falcon_app", "--listen", f"127.0.0.1:{port}", "--admin", "0.0.0.0:0", env=telling, ready=False
    )

    assert refused.wait() == 2
    assert refused.output == "--admin: 0.0.0.0:0 is not a loopback address\n"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
    assert run_program("falcon_app", env=telling).saw("binds 127.0.0.1:0"), "a program that may listen tells of it"


@pytest.mark.parametrize("module", ["falcon_app", "dispatcher"])
def test_every_bad_setting_is_named_at_once_and_no_address_listens(
    run_program: RunProgram, telling: dict[str, str | None], module: str
) -> None:
    bad = {"TALLY_BEAT_SECONDS": "fast", "TALLY_NO_SUCH": "1", "TALLY_SLOTS": "0", "DATABASE_URL": "nonsense"}
    arguments = ["--admin", "0.0.0.0:0"] if module == "falcon_app" else []

    refused = run_program(module, *arguments, env={**telling, **bad}, ready=False)

    assert refused.wait() == 2
    named = [*bad, *arguments[:1]]
    assert sorted(line.partition(": ")[0] for line in refused.output.splitlines()) == sorted(named)
    assert not refused.saw("binds")


def test_a_request_that_cannot_be_read_or_names_no_task_leaves_no_row(service: Service) -> None:
    service.start()

    malformed = service.api.post("/tasks", body=b'{"text": "Go one"')
    unknown = [service.api.get("/tasks/4711"), service.api.cancel(4711)]

    assert (malformed.status, malformed.json()["code"]) == (400, "malformed-body")
    assert [(answer.status, answer.json()["code"]) for answer in unknown] == [(404, "not-found")] * 2
    assert service.database.value("select count(*) from tally.task") == 0
    service.reconcile()


def test_go_one_succeeds_and_four_words_do_not_though_both_were_accepted(service: Service) -> None:
    service.start(env={"TALLY_MAX_WORDS": "3"})

    one, four = service.submit_text("Go one"), service.submit_text("one two three four")

    assert (one.status, four.status) == (202, 202)
    assert one.task is not None
    assert four.task is not None
    ends = [service.api.follow(task) for task in (one.task, four.task)]
    assert [end["state"] for end in ends] == ["SUCCEEDED", "FAILED"]
    assert ends[1]["error"]["reason"] == "text has 4 words, the limit is 3"
    assert service.statistics(one.task) == ("SUCCEEDED", 2, 6, 6, False)
    assert service.statistics(four.task) == ("FAILED", 0, 0, 0, False)
    service.reconcile()
