"""Kinds for measuring. `stamp` leaves the moment its body began, on the clock that all processes share."""

import time
from pathlib import Path
from typing import Any

from dispatcher import Context, task


@task("noop")
def noop(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Do nothing."""
    return None


@task("stamp")
def stamp(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Append task id and CLOCK_MONOTONIC, in nanoseconds, to the file that is named."""
    began = time.monotonic_ns()
    with Path(input["file"]).open("ab", buffering=0) as file:
        file.write(f"{context.task_id} {began}\n".encode())
    return None
