"""Kinds for measuring. `stamp` leaves the moment its body began, on the clock that all processes share."""

import time
from pathlib import Path
from typing import Any

from bench.peer.mark import mark
from dispatcher import Context, Failed, task


@task("noop")
def noop(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Do nothing."""
    return None


@task("fail")
def fail(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Fail, as bodies do."""
    raise Failed("measured")


@task("marked")
def marked(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Do nothing, but leave a mark where it is the first."""
    mark()
    return None


@task("stamp")
def stamp(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Append task id and CLOCK_MONOTONIC, in nanoseconds, to the file that is named."""
    began = time.monotonic_ns()
    with Path(input["file"]).open("ab", buffering=0) as file:
        file.write(f"{context.task_id} {began}\n".encode())
    return None
