"""Celery: its worker's application, `fill N` and `submit N`. Late acknowledgement, no results.

The broker is BENCH_BROKER; its types are where it is installed.
"""

# mypy: ignore-errors

import os
import sys
import time

from celery import Celery
from mark import mark, stamp

app = Celery("celery_peer", broker=os.environ["BENCH_BROKER"])
app.conf.update(
    task_default_queue="q",
    task_acks_late=True,
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
)


@app.task(name="noop")
def noop() -> None:
    """Do nothing, but leave a mark where it is the first."""
    mark()


@app.task(name="stamped")
def stamped(before: int) -> None:
    """Leave the moment."""
    stamp(before)


if __name__ == "__main__":
    for _ in range(int(sys.argv[2])):
        if sys.argv[1] == "fill":
            noop.delay()
        else:
            stamped.delay(time.monotonic_ns())
            time.sleep(0.02)
