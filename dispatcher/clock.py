"""The clock that tells how old the knowledge of a claim is: it goes on while the machine sleeps.

`time.monotonic` stands still then, on Linux, and the other dispatchers' clocks do not: what was claimed before may be
theirs long since.
"""

import time


def clock_with_sleep() -> float:
    """Return seconds since some moment; never goes back."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()
