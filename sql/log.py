"""The log of all programs: standard output, `event key=value`, one line each.

Whoever reads our output may be slow, asleep or gone, and a write to a full pipe waits for ever. So lines are handed
to a thread that writes them, and no other thread ever waits for the log: while it is far behind, lines are lost, and
their number is said once there is room again.
"""

import logging
import sys
from logging.handlers import QueueHandler
from queue import Full, Queue
from threading import Event, Thread
from time import monotonic
from typing import Final

MOST_WAITING: Final = 10_000
FLUSH_SECONDS: Final = 0.5
STUCK_SECONDS: Final = 1.0

log = logging.getLogger("tally.log")


def start_log(level: str) -> None:
    """Send the root logger's lines to standard output."""
    writer = logging.StreamHandler(sys.stdout)
    writer.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(threadName)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(_Unwaiting(writer))
    root.setLevel(level.upper())
    # The pool and the driver report at the place where we handle their errors already.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    # A line that cannot be written (its reader is gone) is nobody's fault, and no reason for a traceback.
    logging.raiseExceptions = False


def flush_log(seconds: float = FLUSH_SECONDS) -> None:
    """Wait until what was said is written, but not for a reader that does not read."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, _Unwaiting):
            handler.wait(seconds)


def is_log_behind() -> bool:
    """Is much still to be written, and getting written? Who has much more to say may wait that long."""
    return any(isinstance(handler, _Unwaiting) and handler.is_behind for handler in logging.getLogger().handlers)


class _Unwaiting(QueueHandler):
    """Hands records to the thread that writes them."""

    queue: Queue[logging.LogRecord | Event]

    def __init__(self, writer: logging.Handler) -> None:
        super().__init__(Queue(MOST_WAITING))
        self._writer = writer
        self._lost = 0
        self._wrote_at = 0.0
        Thread(target=self._write, name="log", daemon=True).start()

    @property
    def is_behind(self) -> bool:
        return self.queue.qsize() > MOST_WAITING // 8 and monotonic() - self._wrote_at < STUCK_SECONDS

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            self.queue.put_nowait(record)
        except Full:
            self._lost += 1

    def wait(self, seconds: float) -> None:
        """Wait until what was said before is written, but no longer."""
        written = Event()
        try:
            self.queue.put_nowait(written)
        except Full:
            return
        written.wait(seconds)

    def _write(self) -> None:
        while True:
            item = self.queue.get()
            if isinstance(item, Event):
                item.set()
                continue
            self._writer.handle(item)
            self._wrote_at = monotonic()
            if self._lost and self.queue.empty():
                lost, self._lost = self._lost, 0
                log.warning("log.lost lines=%d", lost)
