"""Waiting for conditions, never for time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class NotSo(Exception):
    """What was waited for did not come to be in time."""


def wait_until(condition: Callable[[], T], says: str, seconds: float = 20, every: float = 0.01) -> T:
    """Return the condition's first truthy value. Raises `NotSo`, which says what was waited for."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise NotSo(f"after {seconds:g} s it is not so that {says}; last seen: {value!r}")
        time.sleep(every)
