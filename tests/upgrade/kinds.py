"""A kind that no earlier program knows."""

from typing import Any

from dispatcher import Context, task


@task("of the day")
def of_the_day(input: dict[str, Any], context: Context) -> object:  # noqa: A002
    """Return the input."""
    return input
