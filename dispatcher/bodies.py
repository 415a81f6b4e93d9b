"""How a body is called: with its context or without, a plain function or an async one.

An async body has an event loop of its own, in the thread of its slot, from its first step to its last; what it left
running there is canceled with it. It is stopped as asyncio stops a task: `CancelledError` is raised where it awaits.
"""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias, cast

from dispatcher.context import Context
from dispatcher.failures import Canceled

Body: TypeAlias = Callable[..., Any]
Run: TypeAlias = Callable[[Any, Context], object]
"""A body as slots call it: with its input and its context, to its end."""


def takes(body: Body) -> tuple[Any, bool]:
    """Return the annotation of a body's input (`inspect.Parameter.empty` without one), and whether it takes a context.

    Raises `ValueError` for a body that can be called neither with an input and a context nor with an input alone, for
    one that would take a context for something else, and for a generator, whose call runs nothing of it.
    """
    if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        raise ValueError("a function that yields cannot be run as a body")
    for function in _wrapped(body):
        try:
            signature = inspect.signature(function, follow_wrapped=False)
        except ValueError:
            # A function written in C need not say what it takes.
            break
        first = next(iter(signature.parameters.values()), None)
        if first is None or first.kind is not inspect.Parameter.VAR_POSITIONAL:
            return (first and first.annotation), _takes_context(signature)
    return inspect.Parameter.empty, True


def function_of(body: Body) -> Any:
    """Return the function behind a body: what it wraps, what it is a part of, or what an object is called by."""
    inner = inspect.unwrap(body)
    while isinstance(inner, partial):
        inner = inspect.unwrap(inner.func)
    return inner if hasattr(inner, "__code__") else type(inner).__call__


def _wrapped(body: Body) -> Iterator[Body]:
    """Yield a body and what it wraps, outermost first: a wrapper of any arguments passes on those it is given."""
    inner: Body | None = body
    while inner is not None:
        yield inner
        inner = getattr(inner, "__wrapped__", None)


def _takes_context(signature: inspect.Signature) -> bool:
    for second in [*signature.parameters.values()][1:2]:
        optional = second.kind is second.POSITIONAL_OR_KEYWORD and second.default is not second.empty
        if optional and second.name != "context":
            # Whatever it is for, a context would count as true there.
            raise ValueError(f"a second parameter gets the context: with a default it is named so, not {second.name}")
    for values in ((None, None), (None,)):
        with suppress(TypeError):
            signature.bind(*values)
            return len(values) == 2
    raise ValueError(f"expected parameters (input, context) or (input), got {signature}")


def runner(body: Body, *, with_context: bool) -> Run:
    """Return how to run a body to its end, in any thread."""
    run: Run = body if with_context else lambda given, _context: body(given)
    if not is_async(body):
        return run

    def run_async(given: object, context: Context) -> object:
        awaited = run(given, context)
        if not inspect.isawaitable(awaited):
            return awaited
        with asyncio.Runner() as loop:
            return loop.run(_until_stopped(awaited, context))

    return run_async


def is_async(body: Body) -> bool:
    """Is a body, or what it wraps, an async function?"""
    return any(
        inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
        for function in _wrapped(body)
    )


async def _until_stopped(body: Any, context: Context) -> object:
    loop, running = asyncio.get_running_loop(), cast("asyncio.Task[object]", asyncio.current_task())

    def stop() -> None:
        with suppress(RuntimeError):  # the loop is closed: the body has ended
            loop.call_soon_threadsafe(running.cancel)

    undo = context.on_cancel(stop)
    try:
        return await body
    except asyncio.CancelledError:
        if context.cancel_requested:
            raise Canceled from None
        raise
    finally:
        undo()
