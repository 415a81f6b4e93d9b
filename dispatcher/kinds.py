"""Kinds: which function runs a task. This is what people who write tasks import.

    from dispatcher import Context, task

    @task("mail.send")
    def send(input: dict, context: Context) -> object: ...

A kind is declared by importing its module; two functions of one kind are a mistake that says both names. A body
raises `Failed("…")` to give the task's reason in its own words, and lets `Canceled` pass when it stops because
of a cancel.
"""

import importlib
from collections.abc import Callable
from threading import Event, Lock
from typing import Any, Final, Protocol, TypeAlias

from sql.documents import Json

Body: TypeAlias = Callable[[dict[str, Any], "Context"], Json | object]


class Failed(Exception):
    """Raised by a body: the task ends FAILED, with this message as its reason."""


class Canceled(Exception):
    """Raised inside a body that stops because its cancel was accepted."""


class DuplicateKind(Exception):
    """Two functions are declared for one kind."""


class Cancel:
    """Has a cancel been accepted? As a `threading.Event`, which is made only where somebody waits.

    Hardly a body does, and an event costs more than all else that a claim takes in this process.
    """

    __slots__ = ("_event", "_is_set")

    _making: Final = Lock()

    def __init__(self) -> None:
        self._is_set = False
        self._event: Event | None = None

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        # Who makes the event after this line was passed looks at the flag before it waits.
        if self._event is not None:
            self._event.set()

    def wait(self, seconds: float) -> bool:
        """Wait until it is set, at most so long; return whether it is."""
        with self._making:
            event = self._event = self._event or Event()
        return self._is_set or event.wait(seconds)


class Context:
    """What a body may ask of the dispatcher that runs it."""

    def __init__(self, task_id: int, attempt: int, cancel: Cancel) -> None:
        self.task_id: Final = task_id
        self.attempt: Final = attempt
        self._cancel = cancel

    def __repr__(self) -> str:
        return f"<Context task {self.task_id}, attempt {self.attempt}>"

    @property
    def cancel_requested(self) -> bool:
        """Has a cancel of this task been accepted? Then it ends CANCELED, whatever the body still does."""
        return self._cancel.is_set()

    def raise_if_canceled(self) -> None:
        """Raise `Canceled` once a cancel of this task was accepted."""
        if self.cancel_requested:
            raise Canceled

    def sleep(self, seconds: float) -> None:
        """Wait; raises `Canceled`, at once, when a cancel is accepted meanwhile."""
        if self._cancel.wait(seconds):
            raise Canceled


class _Declaring(Protocol):
    def __call__(self, body: Body, /) -> Body: ...


KINDS: Final[dict[str, Body]] = {}
"""Every kind declared so far in this process."""


def task(kind: str) -> _Declaring:
    """Declare the decorated function as what runs tasks of this kind. Raises `DuplicateKind`, `ValueError`."""
    if not 1 <= len(kind.encode()) <= 255:
        raise ValueError(f"a kind has 1 to 255 bytes, got {kind!r}")

    def declare(body: Body) -> Body:
        known = KINDS.get(kind)
        if known is not None and _code(known) != _code(body):
            raise DuplicateKind(f"kind {kind!r} is declared twice: by {_place(known)} and by {_place(body)}")
        KINDS[kind] = body
        return body

    return declare


def load(modules: list[str]) -> list[str]:
    """Import the modules that declare kinds. Returns what went wrong, a line for each module that did."""
    problems = []
    for module in modules:
        try:
            importlib.import_module(module)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a person's module raises is its problem
            problems.append(f"tasks module {module}: {type(error).__name__}: {error}")
    return problems


def _code(body: Body) -> object:
    """What tells one function from another; a module that is imported twice declares the same one twice."""
    return getattr(body, "__code__", body)


def _place(body: Body) -> str:
    return f"{body.__module__}.{getattr(body, '__qualname__', repr(body))}"
