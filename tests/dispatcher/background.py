"""A call on a thread of its own, and what became of it."""

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import Generic, TypeVar

T = TypeVar("T")


class Background(Generic[T]):
    """A call that runs in the background."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._future: Future[T] = Future()
        self._call = call
        Thread(target=self._run, name="background", daemon=True).start()

    def _run(self) -> None:
        try:
            self._future.set_result(self._call())
        except BaseException as error:
            self._future.set_exception(error)

    @property
    def is_done(self) -> bool:
        return self._future.done()

    def result(self) -> T:
        """Return what the call returned, or raise what it raised; at the latest after 20 seconds."""
        return self._future.result(20)
