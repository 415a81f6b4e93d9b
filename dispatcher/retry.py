"""Which errors are worth another try, and how long to wait: the policies, in one place.

A claim is tried again only when the world was away; a terminal write is tried again on every error, until it is
acknowledged or the event says to give up. Both wait with jitter, up to a cap, and never past that event.
"""

import logging
from threading import Event
from typing import Final

from tenacity import RetryCallState, Retrying, retry_if_exception_type
from tenacity.nap import sleep_using_event
from tenacity.stop import stop_when_event_set
from tenacity.wait import wait_random_exponential

from sql.errors import TIMED_OUT, DatabaseAway, DatabaseBusy

log = logging.getLogger("tally.retry")

FIRST_SECONDS: Final = 0.025


def terminal_write(give_up: Event) -> Retrying:
    """Try a terminal write on every error, 25 to 250 ms apart; raises tenacity's `RetryError` on `give_up`."""
    return Retrying(
        retry=retry_if_exception_type(Exception),
        wait=wait_random_exponential(multiplier=FIRST_SECONDS, min=FIRST_SECONDS, max=0.25),
        stop=stop_when_event_set(give_up),
        sleep=sleep_using_event(give_up),
        before_sleep=_log_some,
    )


def reconnect(give_up: Event, longest_seconds: float) -> Retrying:
    """Try to connect for as long as the world is away, 25 ms to `longest_seconds` apart."""
    return Retrying(
        retry=retry_if_exception_type(DatabaseAway),
        wait=wait_random_exponential(multiplier=FIRST_SECONDS, min=FIRST_SECONDS, max=longest_seconds),
        stop=stop_when_event_set(give_up),
        sleep=sleep_using_event(give_up),
    )


def is_timeout(error: Exception) -> bool:
    """Did the statement run out of its own time, over a living connection?"""
    return isinstance(error, DatabaseBusy) and error.sqlstate == TIMED_OUT


def _log_some(state: RetryCallState) -> None:
    # The first tries and then ever fewer: an outage of an hour is not ten thousand lines.
    tries = state.attempt_number
    if tries & (tries - 1) == 0 and state.outcome is not None:
        log.warning("write.failed tries=%d error=%s", tries, state.outcome.exception())
