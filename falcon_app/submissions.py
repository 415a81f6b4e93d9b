"""What admission is handed, and what the database says of it."""

import copy
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from random import getrandbits
from time import monotonic
from typing import Final, NamedTuple
from uuid import UUID

from falcon_app.errors import KeyInProgress, KeyReused, Overloaded
from falcon_app.kinds import NO_KINDS, Kinds
from falcon_app.payloads import Payload
from sql.errors import DatabaseBusy, TallyError

HELD_SECONDS: Final = 1.0
"""How long a key that another transaction holds is refused from memory."""


def _token() -> UUID:
    """Return a random id. It is no secret; `uuid4` asks the kernel, which costs a turn of the interpreter's lock."""
    return UUID(int=getrandbits(128), version=4)


@dataclass(frozen=True, slots=True)
class Submission:
    """One task to be made, its idempotency key, the kinds it was checked by, and the future of its document."""

    payload: Payload
    deadline: float
    key: str | None = None
    kinds: Kinds = NO_KINDS
    token: UUID = field(default_factory=_token)
    answer: "Future[str]" = field(default_factory=Future)

    def queue(self, kinds: Kinds) -> str:
        """Return the queue it goes to, by these kinds."""
        return self.payload.queue or kinds.queue(self.payload.kind)

    def has_time(self, seconds: float) -> bool:
        return self.deadline - monotonic() >= seconds

    def fail(self, error: TallyError) -> None:
        """Answer with an exception of its own: a shared one would gather the tracebacks of all who raise it."""
        if not self.answer.done():
            self.answer.set_exception(copy.copy(error))


class Row(NamedTuple):
    """A row of `submit_tasks`: the verdict on a submission, and the task that answers it, where there is one.

    With the revision of the kinds, as the transaction saw them.
    """

    verdict: str
    id: int | None
    token: UUID | None
    document: str | None
    revision: int = 0

    def answer(self, submission: Submission) -> None:
        """Answer a submission, once it is certain that this row is committed."""
        match self.verdict, self.document:
            case "admitted", str(document):
                submission.answer.set_result(document)
            case "key reused", _:
                submission.fail(KeyReused(f"task {self.id} was submitted under this key with another body"))
            case "overloaded", _:
                submission.fail(Overloaded("the queue is full"))
            case _:
                raise AssertionError(f"submit_tasks answered {self.verdict!r}")


def fail_all(submissions: Iterable[Submission], error: TallyError) -> None:
    for submission in submissions:
        submission.fail(error)


class HeldKeys:
    """The idempotency keys that another transaction held a moment ago: who asks again need not wait for it again."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def remember(self, key: str) -> None:
        now = monotonic()
        self._until = {held: until for held, until in self._until.items() if until > now}
        self._until[key] = now + HELD_SECONDS

    def require_free(self, key: str | None) -> None:
        """Raise `KeyInProgress` while the key is remembered as held."""
        if key is not None and self._until.get(key, 0.0) > monotonic():
            raise KeyInProgress("the key is held by an open transaction")


def without_time(batch: list[Submission], seconds: float) -> list[Submission]:
    """Refuse, without a row, those of a batch with less time left than this; return the others that wait."""
    for submission in batch:
        if not submission.has_time(seconds):
            submission.fail(DatabaseBusy("no time is left to try this submission alone"))
    return [submission for submission in batch if not submission.answer.done()]
