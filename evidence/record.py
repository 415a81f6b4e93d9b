"""A step as its files tell it. Everything that is claimed of a step is worked out from one of these.

Reading needs the standard library only, and no database.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

TERMINAL: Final = ("SUCCEEDED", "FAILED", "CANCELED")
OPEN: Final = ("QUEUED", "RUNNING")

Row = dict[str, Any]


@dataclass(frozen=True)
class Exchange:
    """One HTTP request and what came back; `status` is None where nothing came."""

    label: str
    method: str
    path: str
    sent: str
    sent_headers: dict[str, str]
    status: int | None
    headers: dict[str, str]
    body: str
    fault: str | None
    began: float
    seconds: float

    @property
    def ended(self) -> float:
        """When the answer was there, in seconds since the step began."""
        return self.began + self.seconds

    @property
    def json(self) -> Any:
        """The answer's body; None where it is not JSON."""
        return _parsed(self.body)

    @property
    def code(self) -> str | None:
        """The problem's stable code."""
        return self.json.get("code") if isinstance(self.json, dict) else None

    @property
    def never_arrived(self) -> bool:
        """Was nobody there to take it?"""
        return str(self.fault).startswith("ConnectionRefusedError")

    @property
    def is_submit(self) -> bool:
        return self.method == "POST" and self.path == "/tasks"

    @property
    def key(self) -> str | None:
        """The Idempotency-Key that was sent."""
        return self.sent_headers.get("Idempotency-Key")

    @property
    def identity(self) -> str | None:
        """What tells this submission's row from every other; None where the body can't have become a row."""
        body = _parsed(self.sent)
        if not isinstance(body, dict):
            return None
        if "kind" in body:
            return identity(body["kind"], body.get("input"))
        return identity("text.stats", body)

    @property
    def task_id(self) -> int | None:
        """The task of a 202, and of a read."""
        return self.json.get("id") if isinstance(self.json, dict) else None


@dataclass(frozen=True)
class Statement:
    """One SQL statement and its rows; `fault` is the error that it met."""

    label: str
    statement: str
    rows: list[Row]
    fault: str | None
    began: float
    seconds: float


@dataclass(frozen=True)
class ProgramRecord:
    """One process: `status` is None while it was not waited for, and negative for a signal."""

    name: str
    command: list[str]
    pid: int
    status: int | None
    began: float
    ended: float | None
    stdout: str
    stderr: str


def identity(kind: object, given: object) -> str:
    """Return the marker in an input, which is unique to a submission, or else the whole of it."""
    if isinstance(given, dict) and "marker" in given:
        return str(given["marker"])
    return json.dumps([kind, given], sort_keys=True)


class Record:
    """The files of one step."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def step(self) -> Row:
        """Name, times, and the fault that ended the step early, if one did."""
        found: Row = json.loads((self.folder / "step.json").read_text())
        return found

    @cached_property
    def exchanges(self) -> list[Exchange]:
        return [Exchange(**_picked(each, Exchange)) for each in self._lines("http.jsonl")]

    @cached_property
    def statements(self) -> list[Statement]:
        return [Statement(**_picked(each, Statement)) for each in self._lines("sql.jsonl")]

    @cached_property
    def tasks(self) -> list[Row]:
        """Every row of tally.task when the step ended."""
        return list(self._lines("task.jsonl"))

    @cached_property
    def dispatchers(self) -> list[Row]:
        """Every row of tally.dispatcher when the step ended."""
        return list(self._lines("dispatcher.jsonl"))

    @cached_property
    def programs(self) -> dict[str, ProgramRecord]:
        """Every program by its name, in the order they were started."""
        found = [json.loads(file.read_text()) for file in sorted((self.folder / "programs").glob("*.json"))]
        return {
            each["name"]: ProgramRecord(
                **_picked(each, ProgramRecord),
                stdout=self._text(f"programs/{each['file']}.stdout"),
                stderr=self._text(f"programs/{each['file']}.stderr"),
            )
            for each in found
        }

    @cached_property
    def begun(self) -> list[tuple[int, int]]:
        """The task and the attempt of every body that was started, in that order."""
        lines = [line.split() for line in self._text("effects").splitlines()]
        return [(int(task), int(attempt)) for task, attempt, *_ in lines]

    @cached_property
    def effects(self) -> list[int]:
        """The task of every body that was started, in that order."""
        return [task for task, _ in self.begun]

    def events(self, name: str) -> list[Row]:
        """What was done to the service, beside HTTP and SQL: `at`, in seconds since the step began, and more."""
        return [each for each in self._lines("events.jsonl") if each["event"] == name]

    def event(self, name: str) -> Row:
        """The only event of that name."""
        (found,) = self.events(name)
        return found

    def answers(self, label: str) -> list[Exchange]:
        return [each for each in self.exchanges if each.label == label]

    def answer(self, label: str) -> Exchange:
        """The only exchange of that label."""
        (found,) = self.answers(label)
        return found

    def statuses(self, label: str) -> list[int | None]:
        return [each.status for each in self.answers(label)]

    def sql(self, label: str) -> list[Row]:
        """The rows of the only statement of that label."""
        (found,) = [each for each in self.statements if each.label == label]
        return found.rows

    def rows_of(self, identity_: str | None) -> list[Row]:
        return self._by_identity.get(identity_, [])

    def row(self, label: str) -> Row | None:
        """The row that the submit of that label made; None where there is none."""
        found = self.rows_of(self.answer(label).identity)
        return found[0] if found else None

    def state(self, label: str) -> str | None:
        """The state at the end of the task that was submitted under that label; None where it has no row."""
        row = self.row(label)
        return row["state"] if row else None

    def reason(self, label: str) -> str | None:
        row = self.row(label)
        return row["error"]["reason"] if row and row["error"] else None

    def starts(self, label: str) -> int:
        """How often the body of the task submitted under that label was started."""
        row = self.row(label)
        return self.effects.count(row["id"]) if row else 0

    @cached_property
    def _by_identity(self) -> dict[str | None, list[Row]]:
        found: dict[str | None, list[Row]] = {}
        for row in self.tasks:
            found.setdefault(identity(row["kind"], row["input"]), []).append(row)
        return found

    def _lines(self, name: str) -> Iterator[Row]:
        for line in self._text(name).splitlines():
            yield json.loads(line)

    def _text(self, name: str) -> str:
        file = self.folder / name
        return file.read_text(errors="replace") if file.exists() else ""


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _picked(found: Row, shape: type) -> Row:
    return {name: found[name] for name in shape.__dataclass_fields__ if name in found}  # type: ignore[attr-defined]
