"""The kinds as dispatchers published them: which queue a kind's tasks go to, and what its input must look like.

Every submit's transaction tells the revision of the kinds that it saw. If that is not the one by which its tasks were
checked, it is rolled back, the kinds are read, and the tasks are checked again; so whatever is committed was checked by
what its transaction saw, however many web processes there are. Nothing is refused by kinds that were read before the
request came: then too they are read. And so they are when the database has been away. No timer, nothing while idle; a
process that has read none yet begins at revision 0, no kinds.

A kind that nobody published is accepted as it comes, and goes to the queue `default`; so is the input of a kind without
a schema, or with one that cannot be compiled, which the log tells once.
"""

import logging
from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from falcon_app.schemas import BadSchema, InputSchema

log = logging.getLogger("tally.web")

DEFAULT_QUEUE: Final = "default"
KindRow: TypeAlias = tuple[str, str, str | None, int]
"""A row of `queries/kinds`: the kind, its queue, its schema as JSON text, its revision."""


class Kind(NamedTuple):
    """A kind: its queue, its schema as the database has it, and compiled; None where its inputs are not checked."""

    queue: str
    text: str | None
    revision: int
    schema: InputSchema | None


class Kinds:
    """What was known of the kinds at one moment; never changed."""

    def __init__(self, revision: int, kinds: dict[str, Kind]) -> None:
        self.revision: Final = revision
        self._kinds: Final = kinds

    def __repr__(self) -> str:
        return f"<Kinds {len(self._kinds)}, revision {self.revision}>"

    def queue(self, kind: str) -> str:
        """Return the queue of a kind's tasks."""
        known = self._kinds.get(kind)
        return DEFAULT_QUEUE if known is None else known.queue

    def check(self, kind: str, value: object) -> None:
        """Raise `UnfitInput` unless a kind's input may be submitted."""
        known = self._kinds.get(kind)
        if known is not None and known.schema is not None:
            known.schema.check(value)

    def followed_by(self, rows: Iterable[KindRow]) -> "Kinds":
        """Return what these rows tell, this itself if they tell the same; compiles only what differs."""
        kinds: dict[str, Kind] = {}
        for kind, queue, text, revision in rows:
            known = self._kinds.get(kind)
            schema = known.schema if known is not None and known.text == text else _compiled(kind, text)
            kinds[kind] = Kind(queue, text, revision, schema)
        if kinds == self._kinds:
            return self
        return Kinds(max((known.revision for known in kinds.values()), default=0), kinds)


def _compiled(kind: str, text: str | None) -> InputSchema | None:
    if text is None:
        return None
    try:
        return InputSchema(text)
    except BadSchema as error:
        log.warning("kind.unchecked kind=%r reason=%s", kind, error)
        return None


NO_KINDS: Final = Kinds(0, {})


class LastKinds:
    """The kinds as this process last read them. Its threads share it, and any of them may read them again."""

    def __init__(self) -> None:
        self.last = NO_KINDS
        self.were_read = False

    def learn(self, rows: Iterable[KindRow]) -> Kinds:
        """Return the kinds that these rows of `queries/kinds` tell, from now on the last ones."""
        known = self.last
        self.last = last = known.followed_by(rows)
        self.were_read = True
        if last is not known:
            log.info("kinds.read revision=%d", last.revision)
        return last
