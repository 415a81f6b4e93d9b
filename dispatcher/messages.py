"""What passes between the dispatcher's threads: claims and outcomes, and the words of the loop's inbox."""

from dataclasses import dataclass
from enum import Enum, StrEnum
from queue import Empty, SimpleQueue
from threading import Lock
from time import monotonic
from typing import Final, NamedTuple, TypeAlias

from sql.states import TaskState

Key: TypeAlias = tuple[int, int]
"""A task and an attempt: what a slot is held for. The attempt is 0 where no claim was made."""


class Claim(NamedTuple):
    """A task that this dispatcher holds."""

    id: int
    attempt: int
    kind: str
    input: str
    """The stored JSON text."""
    priority: int
    position: int
    known_at: float
    """A moment, by `clock_with_sleep`, before the database last said that this claim is current."""

    @property
    def key(self) -> Key:
        return self.id, self.attempt


class Ending(StrEnum):
    """How a body ended; what `error.detail` says of a CANCELED task."""

    NOT_STARTED = "not started"
    STOPPED = "stopped"
    RETURNED = "returned"
    RAISED = "raised"
    STILL_RUNNING = "still running"
    SIGTERM = "stopped by SIGTERM"
    SIGKILL = "killed by SIGKILL"
    DIED = "its process died"


class Outcome(NamedTuple):
    """What a claim ended in, unless a cancel was accepted. `result` and `error` are JSON texts.

    QUEUED asks for another attempt, and `error` says why this one ended. It is FAILED with that error where the
    database knows of no attempt left.
    """

    claim: Claim
    state: TaskState
    result: str | None
    error: str | None
    ending: Ending
    after_seconds: float | None = None
    """Of QUEUED: how long the next attempt waits; None for the backoff of its kind."""

    @property
    def id(self) -> int:
        return self.claim.id

    @property
    def key(self) -> Key:
        return self.claim.key


@dataclass(frozen=True, slots=True)
class Refusal:
    """A QUEUED task whose claim the database refuses, for that very task."""

    id: int
    detail: str
    attempt: int = 0
    """The last it had had."""

    @property
    def key(self) -> Key:
        return self.id, 0


Report: TypeAlias = Outcome | Refusal
"""What is to be written of one task, holding one slot until it is."""


class Verdict(StrEnum):
    """What became of a report; the first three are finish_tasks' words."""

    WRITTEN = "written"
    ALREADY = "yours already"
    LATE = "late"
    DROPPED = "dropped"


VERDICTS: Final = {str(verdict): verdict for verdict in Verdict}


class Word(Enum):
    """What the loop is told without more to say."""

    WOKEN = "woken"
    WOKEN_BY_NAME = "woken by name"
    SLOT_FREED = "slot freed"
    SIGNAL = "signal"
    CONDEMNED = "condemned"


@dataclass(frozen=True, slots=True)
class ThreadEnded:
    """A thread that must not end has, or makes no turns any more."""

    name: str
    why: str


Message: TypeAlias = Word | Claim | ThreadEnded
"""A `Claim` in the inbox is one that waited too long to be begun without asking again."""


class Inbox:
    """The loop's one inbox. Words that say no more twice than once wait at most once, however many were put.

    `signal` is safe in a signal handler: SimpleQueue.put is reentrant, and no lock is taken.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[Message] = SimpleQueue()
        self._waiting: set[Word] = set()
        self._lock = Lock()
        self.signaled_at: float | None = None
        """When the first signal came. For who is in the midst of something and cannot take the messages now."""
        self._signals: SimpleQueue[float] = SimpleQueue()

    def put(self, message: Message) -> None:
        if isinstance(message, Word):
            with self._lock:
                if message in self._waiting:
                    return
                self._waiting.add(message)
        self._queue.put(message)

    def signal(self) -> None:
        now = monotonic()
        if self.signaled_at is None:
            self.signaled_at = now
        self._signals.put(now)
        self._queue.put(Word.SIGNAL)

    def await_signal(self, timeout: float | None) -> float | None:
        """Wait for the next signal, and return when it came; for one thread, which has nothing else to do."""
        try:
            return self._signals.get(timeout=timeout)
        except Empty:
            return None

    def get(self, timeout: float) -> list[Message]:
        """Wait for a message, at most `timeout` seconds, and return everything there is then, in order."""
        messages: list[Message] = []
        try:
            messages.append(self._queue.get(timeout=max(0.0, timeout)))
            while True:
                messages.append(self._queue.get_nowait())
        except Empty:
            pass
        with self._lock:
            self._waiting.clear()
        return messages
