"""A task as tests see it: its representation, as the database makes it for every reader, with types."""

import json
from datetime import datetime
from typing import Any

import msgspec

from sql.documents import Json, read
from sql.states import TaskState


class AttemptDocument(msgspec.Struct, frozen=True):
    """An attempt that has ended."""

    attempt: int
    started_at: datetime | None
    finished_at: datetime | None
    error: dict[str, Any] | None

    def __str__(self) -> str:
        detail = _member(self.error, "detail")
        return f"attempt {self.attempt}: {self.reason or 'succeeded'}{f' ({detail})' if detail else ''}"

    @property
    def reason(self) -> str | None:
        """Why it was not the last, or did not succeed."""
        return _member(self.error, "reason")


class TaskDocument(msgspec.Struct, frozen=True):
    """A task's members as in docs/http.md, in the same order."""

    id: int
    kind: str
    queue: str
    state: TaskState
    cancel_requested: bool
    attempt: int
    input: dict[str, Any]
    result: Json
    error: dict[str, Any] | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    due_at: datetime | None = None
    retry_of: int | None = None
    attempts: list[AttemptDocument] = []

    def __str__(self) -> str:
        """A line for each member that says something, for the message of a test that fails."""
        members: dict[str, Any] = msgspec.to_builtins(self)
        lines = [f"task {members.pop('id')} is {members.pop('state')}:"]
        del members["attempts"]
        lines += [f"    {name}: {_shown(value)}" for name, value in members.items() if value is not None]
        lines += [f"    {attempt}" for attempt in self.attempts]
        return "\n".join(lines)

    @property
    def reason(self) -> str | None:
        """Why it ended, where it did not succeed."""
        return _member(self.error, "reason")

    @property
    def detail(self) -> str | None:
        """What else is known of that."""
        return _member(self.error, "detail")


def document(text: str) -> TaskDocument:
    """Return what `tally.task_document` has made."""
    return msgspec.convert(read(text), TaskDocument)


def _member(error: dict[str, Any] | None, name: str) -> str | None:
    return None if error is None else error.get(name)


def _shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)
