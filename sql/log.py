"""The log of all programs: standard output, `event key=value`, one line each."""

import logging
import sys


def start_log(level: str) -> None:
    """Send the root logger's lines to standard output; the supervisor adds the time."""
    logging.basicConfig(
        stream=sys.stdout,
        level=level.upper(),
        format="%(asctime)s %(levelname)s %(threadName)s %(message)s",
    )
    # The pool and the driver report at the place where we handle their errors already.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
