"""Waiting for conditions, never for time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T], says: str, seconds: float = 20, seen: Callable[[], object] | None = None
) -> T:
    """Return the condition's first truthy value; fail with what was waited for and what was seen instead."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            shown = seen() if seen else value
            raise AssertionError(f"after {seconds:g} s it is not so that {says}; seen: {shown}")
        time.sleep(0.01)


def outlast(seconds: float) -> None:
    """Let a fault last for so long: the one thing that time itself must pass for."""
    end = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > end, f"{seconds} s have passed", seconds + 1)
