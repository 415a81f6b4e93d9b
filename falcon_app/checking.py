"""What is submitted is checked in the request's own thread, before admission hears of it.

By the kinds as they were last read. What fits needs no more here: the submit's own transaction finds out whether they
have changed meanwhile (see `kinds`). What does not fit may fit what was published since, so it is refused only by
kinds that were read after the request came.
"""

from collections.abc import Callable

from falcon_app.bulk_checks import TaskRefused, checked
from falcon_app.errors import UnfitInput
from falcon_app.kinds import Kinds, LastKinds
from falcon_app.payloads import OneOfMany, Payload
from falcon_app.store import Store


class Checking:
    """Says by which kinds something may be submitted."""

    def __init__(self, kinds: LastKinds, store: Store) -> None:
        self._kinds = kinds
        self._store = store

    def one(self, payload: Payload, deadline: float) -> Kinds:
        """Return the kinds that a task fits. Raises `UnfitInput`, and `DatabaseAway` where they cannot be read."""
        return self._allowing(lambda kinds: kinds.check(payload.kind, payload.value), deadline)

    def many(self, tasks: list[OneOfMany], deadline: float) -> Kinds:
        """Return the kinds that a request's tasks fit. Raises `TaskRefused`, and `DatabaseAway`."""
        return self._allowing(lambda kinds: checked(tasks, kinds), deadline)

    def _allowing(self, check: Callable[[Kinds], object], deadline: float) -> Kinds:
        if not self._kinds.were_read:
            # Or the first transaction of this process would be rolled back, and its tasks' ids with it.
            self._read(deadline)
        kinds = self._kinds.last
        try:
            check(kinds)
        except (UnfitInput, TaskRefused):
            kinds = self._read(deadline)
            check(kinds)
        return kinds

    def _read(self, deadline: float) -> Kinds:
        return self._kinds.learn(self._store.kinds(deadline))
