"""What a body may raise to say how it ends, and what it may meet.

A body that raises `Failed` gives the task's reason in its own words, for good. `Retry` asks for another attempt. It
lets `Canceled` pass when it is to stop. Everything else that it raises is an exception like any other: the kind's
`retry_on` and `fail_on` say whether another attempt follows.
"""

from datetime import timedelta
from typing import Final

LONGEST_SECONDS: Final = 30 * 86_400.0
"""The longest time that a declaration or a `Retry` may name: 30 days."""


class Failed(Exception):
    """Raised by a body: the task ends FAILED, with this message as its reason, whatever attempts are left."""


class Canceled(Exception):
    """Raised inside a body that is to stop: its cancel was accepted, its time limit passed, or nobody will hear it."""


class TimeLimitPassed(Exception):
    """What a passed time limit is to `retry_on` and `fail_on`; nobody raises it."""


class Retry(Exception):
    """Raised by a body: another attempt, if one is left, `after` so many seconds, or after the kind's backoff.

    `reason` is kept with the attempt that ended. Raises `ValueError` for a time below 0 or above 30 days.
    """

    def __init__(self, after: float | timedelta | None = None, reason: str | None = None) -> None:
        super().__init__(reason or "task asked for another attempt")
        self.after_seconds = None if after is None else seconds(after)
        if self.after_seconds is not None and not 0 <= self.after_seconds <= LONGEST_SECONDS:
            raise ValueError(f"a retry comes after 0 to {LONGEST_SECONDS:.0f} seconds, got {after!r}")


def seconds(time: object) -> float:
    """Return a time in seconds. Raises `ValueError` unless it is a number of them or a `timedelta`."""
    if isinstance(time, timedelta):
        return time.total_seconds()
    if isinstance(time, bool) or not isinstance(time, int | float):
        raise ValueError(f"expected seconds or a timedelta, got {time!r}")  # noqa: TRY004 - as any other time that is none
    try:
        return float(time)
    except OverflowError:
        raise ValueError(f"expected seconds or a timedelta, got {time!r}") from None


def message(error: BaseException) -> str:
    """Return what an error says, whose class may be anybody's code. Raises nothing."""
    try:
        # Its own class of text might be returned, with methods that raise later: this is a plain one.
        return str.__str__(str(error))
    except BaseException:  # noqa: BLE001 - __str__ is somebody's code too
        return "(its message cannot be read)"
