"""Which errors are worth another try, and how long to wait: the policies, in one place.

A claim is tried again only when the world was away; a terminal write is tried again on every error, until it is
acknowledged or the event says to give up. Both wait with jitter, up to a cap, and never past that event.
"""

import logging
from collections.abc import Callable
from threading import Event
from typing import Final, Generic, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type
from tenacity.nap import sleep_using_event
from tenacity.stop import stop_when_event_set
from tenacity.wait import wait_random_exponential

from sql.connect import FIRST_BACKOFF_SECONDS, DeadlinePassed
from sql.errors import READ_ONLY, TIMED_OUT, DatabaseAway, DatabaseBusy, Misconfigured, RowRefused, TallyError

log = logging.getLogger("tally.retry")

FIRST_ASIDE_SECONDS: Final = 2.0
LONGEST_ASIDE_SECONDS: Final = 60.0

Key = TypeVar("Key")


def terminal_write(give_up: Event) -> Retrying:
    """Try a terminal write on every error, 25 to 250 ms apart; raises tenacity's `RetryError` on `give_up`."""
    return Retrying(
        retry=retry_if_exception_type(Exception),
        wait=wait_random_exponential(multiplier=FIRST_BACKOFF_SECONDS, min=FIRST_BACKOFF_SECONDS, max=0.25),
        stop=stop_when_event_set(give_up),
        sleep=sleep_using_event(give_up),
        before_sleep=_log_some,
    )


def reconnect(give_up: Event, longest_seconds: float) -> Retrying:
    """Try to connect for as long as the world is away, 25 ms to `longest_seconds` apart."""
    return Retrying(
        retry=retry_if_exception_type(DatabaseAway),
        wait=wait_random_exponential(multiplier=FIRST_BACKOFF_SECONDS, min=FIRST_BACKOFF_SECONDS, max=longest_seconds),
        stop=stop_when_event_set(give_up),
        sleep=sleep_using_event(give_up),
    )


class Aside(Generic[Key]):
    """What failed alone is set aside, so that the others go on: for 2 s, and for twice as long each time, up to 60.

    Where many are, each stays longer: a try may cost 2 s, and half of the time is for the others.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._periods: dict[Key, tuple[float, float]] = {}  # to (until, seconds)

    def put(self, key: Key) -> float:
        """Set aside, and return for how many seconds."""
        _, seconds = self._periods.get(key, (0.0, FIRST_ASIDE_SECONDS / 2))
        seconds = max(min(2 * seconds, LONGEST_ASIDE_SECONDS), 2 * FIRST_ASIDE_SECONDS * len(self._periods))
        self._periods[key] = (self._clock() + seconds, seconds)
        return seconds

    def holds(self, key: Key) -> bool:
        return self._clock() < self._periods.get(key, (0.0, 0.0))[0]

    def remembers(self, key: Key) -> bool:
        """Is it set aside, or was it not long ago?"""
        return key in self._periods

    def clear(self) -> None:
        """Forget them all: what they met may be over."""
        self._periods.clear()

    def held(self) -> list[Key]:
        """Return what is set aside now."""
        now = self._clock()
        # A period is remembered for a while after it has passed, so that the next one grows.
        self._periods = {
            key: (until, seconds)
            for key, (until, seconds) in self._periods.items()
            if now < until + LONGEST_ASIDE_SECONDS
        }
        return [key for key, (until, _) in self._periods.items() if now < until]


def is_read_only(error: Exception) -> bool:
    """Is this a server that was demoted? Then it is for a new connection to find the one that took over."""
    return isinstance(error, DatabaseBusy) and error.sqlstate == READ_ONLY


def may_be_one_rows(error: TallyError) -> bool:
    """Could one row alone be the reason, so that the others are to be tried without it?

    Any error over a living connection could: a trigger may lock, run out of something, or raise what it likes.
    """
    if isinstance(error, DatabaseBusy):
        return not is_read_only(error)
    return isinstance(error, RowRefused | Misconfigured) or is_timeout(error)


def is_one_rows(error: TallyError) -> bool:
    """Is one row alone the reason, for certain?

    Not where a feature is missing, a limit of the program is met, or the table is in a wrong state (published, say,
    without an identity of its rows): every row may meet these.
    """
    return isinstance(error, RowRefused) and (error.sqlstate or "")[:2] not in {"0A", "25", "54", "55"}


def is_timeout(error: Exception) -> bool:
    """Did the call run out of time, the statement's or ours? Then it may be too much for one call."""
    return (isinstance(error, DatabaseBusy) and error.sqlstate == TIMED_OUT) or isinstance(
        error.__cause__, DeadlinePassed
    )


def _log_some(state: RetryCallState) -> None:
    # The first tries and then ever fewer: an outage of an hour is not ten thousand lines.
    tries = state.attempt_number
    if tries & (tries - 1) == 0 and state.outcome is not None:
        log.warning("write.failed tries=%d error=%s", tries, state.outcome.exception())
