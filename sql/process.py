"""How our processes end: with their status, in time, whatever became of their threads and of what they print to.

Bodies run on threads that nobody can stop, and whoever reads our output may be gone or asleep. So the end is never
the interpreter's own, which waits for both, but `os._exit`, after a moment for what the log was told.
"""

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic, sleep
from typing import Final, NoReturn, TypeVar

from sql.log import FLUSH_SECONDS, flush_log

log = logging.getLogger("tally.process")

LAST_MOMENT_SECONDS: Final = 0.1
"""How long a program may take to end by itself once its time is over."""
HEARING_SECONDS: Final = 0.2

T = TypeVar("T")


def next_word(inbox: SimpleQueue[T]) -> T:
    """Wait, in the main thread, for the next word of an inbox that signal handlers put theirs in.

    Never long at a stretch. Of signals that come close together the kernel may give any to another thread: that wakes
    nobody, and handlers run only in the main thread, when it next does.
    """
    while True:
        with suppress(Empty):
            return inbox.get(timeout=HEARING_SECONDS)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let a signal to stop raise KeyboardInterrupt inside, in the middle of a call to the database too.

    The driver then cancels what the server is doing for us. For the main thread of a program that does one thing.
    """
    handlers = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def run_to_the_end(main: Callable[[], int]) -> NoReturn:
    """Run a program, and end the process with the status that it returns; 1 where it raises."""
    status = 1
    try:
        status = main()
    except SystemExit as error:  # argparse has spoken
        status = error.code if isinstance(error.code, int) else 1
    except BaseException:
        log.exception("process.failed")
    flush_log()
    # What was printed may wait for the same reader; nobody else does.
    flushing = Thread(target=_flush_output, daemon=True)
    flushing.start()
    flushing.join(FLUSH_SECONDS)
    os._exit(status)


def _flush_output() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()


def end_overdue(
    await_signal: Callable[[float | None], float | None], drain_seconds: float, second_seconds: float
) -> None:
    """End the process when a stop is over, if it is still there: it waits for a call, say.

    `await_signal(timeout)` waits for the next signal and returns when it came. A stop takes `drain_seconds` from the
    first, and no more than `second_seconds` from the second.
    """
    first = await_signal(None) or monotonic()
    end_at = first + drain_seconds
    second = await_signal(max(0.0, end_at - monotonic()))
    if second is not None:
        end_at = min(end_at, second + second_seconds)
    sleep(max(0.0, end_at - monotonic()) + LAST_MOMENT_SECONDS)
    log.critical("process.overdue seconds=%g", end_at - first)
    end_now()


def end_now() -> NoReturn:
    """End the process with status 1."""
    flush_log(LAST_MOMENT_SECONDS)
    os._exit(1)
