"""What the dispatcher and a running body tell each other: that it is to stop, and which task it runs."""

import logging
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Final

from dispatcher.failures import Canceled

log = logging.getLogger("tally.body")


class Cancel:
    """Is a body to stop? Set once, for good: at an accepted cancel, a passed time limit, or a dispatcher's end.

    What tells those who wait is made only where somebody does. Hardly a body does, and it would cost more than all
    else that a claim takes in this process. `set` takes no lock: a signal handler may call it, in the midst of a wait.
    """

    __slots__ = ("_is_set", "_told", "timed_out")

    _making: Final = Lock()

    def __init__(self) -> None:
        self._is_set = False
        self._told: dict[object, Callable[[], object]] | None = None
        self.timed_out = False
        """Is it the task's time limit that passed? Whoever watches that says so before `set`."""

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        # Who wants to be told after this line was passed looks at the flag before it waits.
        if self._told is not None:
            for tell in list(self._told.values()):
                try:
                    tell()
                except BaseException:  # a body's own code, in a thread that is not its own
                    log.exception("body.untold")

    def on_set(self, tell: Callable[[], object]) -> Callable[[], None]:
        """Have `tell` called once it is set, at once where it is already; now and then twice. Returns how to undo this.

        `tell` is called by whoever sets it, perhaps in a signal handler: it must neither wait nor raise.
        """
        with self._making:
            told = self._told = self._told if self._told is not None else {}
        key = object()
        told[key] = tell
        if self._is_set:
            tell()

        def undo() -> None:
            told.pop(key, None)

        return undo

    def wait(self, seconds: float) -> bool:
        """Wait until it is set, at most so long; return whether it is."""
        told: SimpleQueue[None] = SimpleQueue()
        undo = self.on_set(lambda: told.put(None))
        try:
            with suppress(Empty):
                told.get(timeout=max(0.0, seconds))
        finally:
            undo()
        return self._is_set


class Context:
    """What a body may ask of the dispatcher that runs it."""

    __slots__ = ("_cancel", "attempt", "task_id")

    def __init__(self, task_id: int, attempt: int, cancel: Cancel) -> None:
        self.task_id: Final = task_id
        self.attempt: Final = attempt
        self._cancel = cancel

    def __repr__(self) -> str:
        return f"<Context task {self.task_id}, attempt {self.attempt}>"

    @property
    def cancel_requested(self) -> bool:
        """Is this body to stop? After an accepted cancel the task ends CANCELED, whatever the body still does."""
        return self._cancel.is_set()

    def raise_if_canceled(self) -> None:
        """Raise `Canceled` once this body is to stop."""
        if self.cancel_requested:
            raise Canceled

    def on_cancel(self, tell: Callable[[], object]) -> Callable[[], None]:
        """Have `tell` called once this body is to stop, as `Cancel.on_set` says. Returns how to undo this."""
        return self._cancel.on_set(tell)

    def sleep(self, seconds: float) -> None:
        """Wait; raises `Canceled`, at once, when this body is to stop meanwhile. For an async body, `asyncio.sleep`."""
        if self._cancel.wait(seconds):
            raise Canceled
