"""Kinds: which function runs a task, and all that its declaration says.

    from dispatcher import Context, task

    @task("mail.send")
    def send(input: dict, context: Context) -> object: ...

A kind is declared by importing its module; two functions of one kind are a mistake that says both places. What a
declaration may say is in `declarations`, what a body may take in `inputs`, what it may raise in `failures`.
"""

import importlib
import traceback
from collections.abc import Callable
from datetime import timedelta
from functools import update_wrapper
from inspect import unwrap
from typing import Any, Final, Literal, Never, Protocol

from dispatcher.bodies import Body, Run, runner, takes
from dispatcher.declarations import Backoff, BadDeclaration, Options, checked, kind_name, place
from dispatcher.failures import message
from dispatcher.inputs import input_type
from sql.documents import read


class DuplicateKind(BadDeclaration):
    """Two functions are declared for one kind."""


class Task:
    """A declared kind: what runs it, and how it is submitted. Called, it is the function that was declared."""

    def __init__(self, kind: str, body: Body, options: Options) -> None:
        """Raises whatever tells that the body cannot be run, or that no JSON object is what it takes."""
        annotation, with_context = takes(body)
        self.kind: Final = kind
        self.body: Final = body
        self.options: Final = options
        self.input_type: Final = input_type(body, annotation)
        self.input_schema: Final[dict[str, Any] | None] = None if self.input_type is None else self.input_type.schema
        self.read: Callable[[str], object] = read if self.input_type is None else self.input_type.read
        """Return what the body takes, of a stored input. Raises `BadInput`; `ValueError` for one that is no JSON."""
        self.run: Run = runner(body, with_context=with_context)
        """Call the body, to its end, whichever way it is called; returns what it returned, raises what it raised."""
        update_wrapper(self, body, updated=())

    def __repr__(self) -> str:
        return f"<Task {self.kind} {place(self.body)}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.body(*args, **kwargs)

    def submit(
        self,
        input: object,  # noqa: A002 - as every body
        *,
        idempotency_key: str | None = None,
        queue: str | None = None,
        priority: int = 0,
    ) -> int:
        """Submit a task of this kind, in a transaction of its own; returns its id once that is committed.

        `input` is of the annotated type, or the dict that it is read from. Of the tasks that wait, those of the lowest
        `priority` go first. Raises `BadInput`, and what `submitting.submit` says.
        """
        from dispatcher import submitting  # noqa: PLC0415 - the driver is most of what a child would load to begin

        return submitting.submit(self._submission(input, idempotency_key, queue, priority))

    def submit_in(
        self,
        connection: object,
        input: object,  # noqa: A002 - as `submit`
        *,
        idempotency_key: str | None = None,
        queue: str | None = None,
        priority: int = 0,
    ) -> int:
        """Submit in the transaction of a psycopg connection or cursor: the task is there exactly if that commits."""
        from dispatcher import submitting  # noqa: PLC0415 - the driver is most of what a child would load to begin

        return submitting.submit_in(connection, self._submission(input, idempotency_key, queue, priority))

    def _submission(self, given: object, key: str | None, queue: str | None, priority: int) -> dict[str, object]:
        from dispatcher import submitting  # noqa: PLC0415 - the driver is most of what a child would load to begin

        return submitting.submission(
            self.kind,
            given,
            self.input_type,
            idempotency_key=key,
            queue=self.options.queue if queue is None else queue,
            priority=priority,
        )


class _Declaring(Protocol):
    def __call__(self, body: Body, /) -> Task: ...


KINDS: Final[dict[str, Task]] = {}
"""Every kind declared so far in this process."""


def task(
    kind: str,
    *,
    slot: Literal["thread", "process"] | None = None,
    time_limit: float | timedelta | None = None,
    max_attempts: int | None = None,
    backoff: Backoff | None = None,
    retry_on: type[Exception] | tuple[type[Exception], ...] | None = None,
    fail_on: type[Exception] | tuple[type[Exception], ...] | None = None,
    on_crash: Literal["fail", "retry"] | None = None,
    queue: str | None = None,
    keep_result: bool | None = None,
    **unknown: Never,
) -> _Declaring:
    """Declare the decorated function as what runs tasks of this kind; the defaults are those of `Options`.

    Declaring raises `BadDeclaration`, with the place and everything that is wrong, and `DuplicateKind`.
    """
    if callable(kind):
        raise BadDeclaration(f'{place(kind)}: expected the name of a kind, as in @task("report.build")')
    given: dict[str, object] = {
        "slot": slot,
        "time_limit": time_limit,
        "max_attempts": max_attempts,
        "backoff": backoff,
        "retry_on": retry_on,
        "fail_on": fail_on,
        "on_crash": on_crash,
        "queue": queue,
        "keep_result": keep_result,
        **unknown,
    }

    def declare(body: Body) -> Task:
        body = body.body if isinstance(body, Task) else body
        try:
            declared = Task(kind_name(kind), body, checked(given))
        except Exception as error:  # a type that is annotated may raise anything
            said = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
            raise BadDeclaration(f"{place(body)}: kind {kind!r}: {' '.join(said.split())}") from error
        known = KINDS.get(kind)
        if known is not None and _code(known.body) != _code(body):
            raise DuplicateKind(f"kind {kind!r} is declared twice: by {place(known.body)} and by {place(body)}")
        KINDS[kind] = declared
        return declared

    return declare


def load(modules: list[str]) -> list[str]:
    """Import the modules that declare kinds. Returns what went wrong, a line for each module that did."""
    problems = []
    for module in modules:
        try:
            importlib.import_module(module)
        except BadDeclaration as error:
            problems.append(f"tasks module {module}: {error}")
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a person's module raises is its problem
            said = " ".join(f"{type(error).__name__}: {message(error)}".split())
            problems.append(f"tasks module {module}: {said}{_innermost(module, error)}")
    return problems


def _innermost(module: str, error: BaseException) -> str:
    """Say where inside the module, or the package that it is in, the error was raised."""
    if isinstance(error, SyntaxError):
        return f" (at {error.filename}:{error.lineno})"
    package = module.partition(".")[0]
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        if frame.f_globals.get("__name__", "").partition(".")[0] == package:
            return f" (at {frame.f_code.co_filename}:{line})"
    return ""


def _code(body: Body) -> object:
    """What tells one function from another; a module that is imported twice declares the same one twice."""
    code = getattr(unwrap(body), "__code__", None)
    # Two functions of different files may well have equal code.
    return body if code is None else (code, code.co_filename)
