"""The moments of bodies, left in the file that BENCH_MARK names, by CLOCK_MONOTONIC in nanoseconds.

Python's standard library alone: our dispatcher and the peers' workers import it, each in an environment of its own.
"""

import os
import time

_marked = False


def mark() -> None:
    """Leave the moment, once a process; the earliest is the first body of a drain."""
    global _marked  # noqa: PLW0603 - once a process
    if not _marked:
        _marked = True
        _leave(f"{time.monotonic_ns()}")


def stamp(before: int) -> None:
    """Leave the moment behind the one that was submitted with the job."""
    _leave(f"{before} {time.monotonic_ns()}")


def _leave(line: str) -> None:
    with open(os.environ["BENCH_MARK"], "a", encoding="ascii") as file:  # noqa: PTH123 - as cheap as can be
        file.write(f"{line}\n")
