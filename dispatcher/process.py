"""How the process ends: with its status, in time, whatever became of its threads and of what it prints to.

Bodies run on threads that nobody can stop, and whoever reads our output may be gone or asleep. So the end is never
the interpreter's own, which waits for both, but `os._exit` after a moment for last words.
"""

import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from time import monotonic, sleep
from typing import Final, NoReturn

from dispatcher.messages import Inbox

log = logging.getLogger("tally.dispatcher")

LAST_MOMENT_SECONDS: Final = 0.1
"""How long the loop may take to end by itself once its time is over, and how long last words may take."""


def run_to_the_end(main: Callable[[], int]) -> NoReturn:
    """Run, and end the process with the status, whatever became of its threads and of what it prints to."""
    status = 1
    try:
        status = main()
    except SystemExit as error:  # argparse has spoken
        status = error.code if isinstance(error.code, int) else 1
    except BaseException:
        log.exception("dispatcher.failed")
    # Bodies that did not end are threads in whatever state: nothing of theirs may delay or crash the exit. What
    # cannot be flushed any more (its reader is gone, or there never was one) does not change how we ended.
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(status)


def end_overdue(inbox: Inbox, drain_seconds: float) -> None:
    """End the process at the drain deadline, if it is still there: its loop waits for a call, or for its own log."""
    sleep(max(0.0, inbox.await_signal() + drain_seconds - monotonic()) + LAST_MOMENT_SECONDS)
    end_now(lambda: log.critical("dispatcher.overdue seconds=%g", drain_seconds))


def end_now(say: Callable[[], None]) -> NoReturn:
    """End the process with status 1, and say why if that takes no longer than a moment: nobody may read our log."""
    saying = Thread(target=say, daemon=True)
    saying.start()
    saying.join(LAST_MOMENT_SECONDS)
    os._exit(1)
