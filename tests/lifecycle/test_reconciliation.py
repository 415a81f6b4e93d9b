"""The ledger of a step, worked out from its files: which rows the answers to a submission allow."""

import json
from pathlib import Path
from typing import Any

import pytest

from evidence.reconcile import ledger
from evidence.record import Record

REFUSED_CONNECTION = "ConnectionRefusedError: [Errno 111] Connection refused"


def sent(status: int | None, task: int | None = None, *, key: str | None = None, fault: str | None = None) -> Any:
    """One submit of the same body, and its answer."""
    return {
        "label": "",
        "method": "POST",
        "path": "/tasks",
        "sent": json.dumps({"kind": "echo", "input": {"marker": "m"}}),
        "sent_headers": {"Idempotency-Key": key} if key else {},
        "status": status,
        "headers": {},
        "body": json.dumps({"id": task, "state": "QUEUED"}),
        "fault": fault,
        "began": 0.0,
        "seconds": 0.1,
    }


def row(
    task: int, *, key: str | None = None, marker: str = "m", state: str = "SUCCEEDED", attempt: int = 1, kept: int = 0
) -> Any:
    """A row that keeps so many attempts before its last."""
    error = {"reason": "task raised ValueError", "detail": None}
    attempts = [{"attempt": number, "error": error} for number in range(1, kept + 1)] or None
    held = {"state": state, "attempt": attempt, "claimed_by": None, "idempotency_key": key}
    held |= {"started_at": "2026-01-31T12:00:00+00:00", "attempts": attempts}
    return {"id": task, "kind": "echo", "input": {"marker": marker}, **held}


def failed(folder: Path, answers: list[Any], rows: list[Any], effects: str = "") -> list[str]:
    """Return the claims of the ledger that these files don't bear out."""
    for name, lines in (("http.jsonl", answers), ("task.jsonl", rows)):
        (folder / name).write_text("".join(json.dumps(each) + "\n" for each in lines))
    (folder / "effects").write_text(effects)
    return [each.says for each in ledger(Record(folder)) if not each.passed]


ALLOWED = "every submit has the rows that its answers allow"


@pytest.mark.parametrize(
    ("answers", "rows"),
    [
        ([sent(202, 1)], [row(1)]),
        ([sent(202, 1)], [row(1, state="QUEUED")]),
        ([sent(202, 1), sent(202, 2)], [row(1), row(2)]),
        ([sent(503)], []),
        ([sent(None)], []),
        ([sent(None)], [row(1)]),
        ([sent(504)], [row(1)]),
        ([sent(None, fault=REFUSED_CONNECTION)], []),
        ([sent(503, key="k"), sent(202, 1, key="k"), sent(202, 1, key="k")], [row(1, key="k")]),
        ([sent(None, key="k"), sent(202, 1, key="k")], [row(1, key="k")]),
        ([sent(None, key="k"), sent(None, key="k")], [row(1, key="k")]),
        ([sent(202, 1, key="k"), sent(202, 2)], [row(1, key="k"), row(2)]),
    ],
)
def test_what_the_answers_allow_adds_up(tmp_path: Path, answers: list[Any], rows: list[Any]) -> None:
    assert failed(tmp_path, answers, rows) == []


@pytest.mark.parametrize(
    ("answers", "rows", "found"),
    [
        ([sent(202, 1)], [], "every 202's id is a row"),
        ([sent(202, 1)], [row(1, marker="a stranger's")], ALLOWED),
        ([sent(503)], [row(1)], ALLOWED),
        ([sent(422)], [row(1)], ALLOWED),
        ([sent(None, fault=REFUSED_CONNECTION)], [row(1)], ALLOWED),
        ([sent(None)], [row(1), row(2)], ALLOWED),
        ([sent(202, 1)], [row(1), row(2)], ALLOWED),
        ([sent(202, 1), sent(202, 1)], [row(1)], ALLOWED),
        ([sent(202, 1, key="k"), sent(202, 2, key="k")], [row(1, key="k"), row(2, key="k")], ALLOWED),
        ([sent(None, key="k"), sent(202, 1, key="k")], [row(1, key="k"), row(2, key="k")], ALLOWED),
        ([sent(202, 1)], [row(1, key="k")], ALLOWED),
        ([sent(202, 1)], [row(1), row(2, marker="other")], "every row was submitted"),
    ],
)
def test_what_they_do_not_allow_is_found(tmp_path: Path, answers: list[Any], rows: list[Any], found: str) -> None:
    assert found in failed(tmp_path, answers, rows)


def test_an_attempt_begun_twice_or_without_a_row_is_found(tmp_path: Path) -> None:
    assert failed(tmp_path, [sent(202, 1)], [row(1)], "1 1 77\n1 1 78\n") == ["no attempt was begun twice"]
    assert failed(tmp_path, [sent(202, 1)], [row(1)], "2 1 77\n") == ["no body was started without a row"]


@pytest.mark.parametrize(
    ("attempt", "kept", "begun", "found"),
    [
        (3, 2, "1 1 77\n1 2 77\n1 3 78\n", []),
        (3, 2, "1 3 78\n", []),
        (3, 2, "1 1 77\n1 1 78\n1 3 78\n", ["no attempt was begun twice"]),
        (2, 1, "1 1 77\n1 2 77\n1 3 78\n", ["no attempt was begun that its row does not count"]),
        (3, 1, "1 1 77\n1 2 77\n1 3 78\n", ["every attempt that another followed is kept with its error"]),
        (1, 1, "1 1 77\n", ["every attempt that another followed is kept with its error"]),
    ],
)
def test_attempts_add_up_with_their_row(tmp_path: Path, attempt: int, kept: int, begun: str, found: list[str]) -> None:
    assert failed(tmp_path, [sent(202, 1)], [row(1, attempt=attempt, kept=kept)], begun) == found
