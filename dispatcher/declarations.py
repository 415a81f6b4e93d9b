"""What a declaration may say, and which of them contradict themselves.

    @task("report.build", slot="process", time_limit=60, max_attempts=3, retry_on=OSError)

A declaration is checked whole when its module is imported: one line names the function, its place, and everything that
is wrong. Times may be given in seconds or as `timedelta`, and are kept in seconds.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal

from dispatcher.bodies import Body, function_of
from dispatcher.failures import LONGEST_SECONDS, Canceled, Failed, seconds

MOST_ATTEMPTS: Final = 100
MOST_FACTOR: Final = 1000.0


class BadDeclaration(ValueError):
    """A declaration that no dispatcher may start with."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a task waits for its next attempt: `first`, then `factor` times as long each time, up to `cap`.

    Of that a half is left to chance, so that not all come back at once.
    """

    first: float | timedelta = 1.0
    factor: float = 2.0
    cap: float | timedelta = 600.0

    @property
    def first_seconds(self) -> float:
        return seconds(self.first)

    @property
    def cap_seconds(self) -> float:
        return seconds(self.cap)


@dataclass(frozen=True, slots=True)
class Options:
    """What a declaration says of a kind, checked."""

    slot: Literal["thread", "process"] = "thread"
    time_limit_seconds: float | None = None
    max_attempts: int = 1
    """Of a task, over all its attempts, whatever ended them."""
    backoff: Backoff = Backoff()
    retry_on: tuple[type[Exception], ...] = (Exception,)
    fail_on: tuple[type[Exception], ...] = ()
    on_crash: Literal["fail", "retry"] = "fail"
    queue: str = "default"
    keep_result: bool = True

    def retries(self, error: type[BaseException]) -> bool:
        """May another attempt follow one that raised this?"""
        return issubclass(error, self.retry_on) and not issubclass(error, self.fail_on)


def kind_name(kind: object) -> str:
    """Return a kind that a row can have. Raises `ValueError`."""
    return _name(kind, "a kind")


def checked(given: Mapping[str, object]) -> Options:
    """Return the options of a declaration; None counts as not given. Raises `ValueError` with all that is wrong."""
    given = {name: value for name, value in given.items() if value is not None}
    problems = [f"{name}: there is no such option" for name in given if name not in _READ]
    options: dict[str, Any] = {}
    for name, (field, read) in _READ.items():
        if name in given:
            try:
                options[field] = read(given[name])
            except ValueError as error:
                problems.append(f"{name}: {error}")
    if not problems and options.get("max_attempts", 1) == 1:
        needless = [name for name in ("backoff", "retry_on", "fail_on") if name in given]
        problems += [f"{name}: means nothing without max_attempts of 2 or more" for name in needless]
        if options.get("on_crash") == "retry":
            problems.append("on_crash: 'retry' needs max_attempts of 2 or more")
    if problems:
        raise ValueError("; ".join(problems))
    return Options(**options)


def place(body: Body) -> str:
    """Say where a body is: its module and name, its file and line."""
    function = function_of(body)
    code = getattr(function, "__code__", None)
    named = body if hasattr(body, "__qualname__") else function
    name = f"{named.__module__}.{named.__qualname__}"
    return name if code is None else f"{name} ({code.co_filename}:{code.co_firstlineno})"


def _one_of(*words: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if value not in words:
            raise ValueError(f"expected {' or '.join(map(repr, words))}, got {value!r}")
        return str(value)

    return read


def _time_limit(value: object) -> float:
    limit = seconds(value)
    if not 0 < limit <= LONGEST_SECONDS:
        raise ValueError(f"expected more than 0 and at most {LONGEST_SECONDS:.0f} seconds (30 days), got {value!r}")
    return limit


def _max_attempts(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_ATTEMPTS:
        raise ValueError(f"expected 1 to {MOST_ATTEMPTS}, got {value!r}")
    return value


def _backoff(value: object) -> Backoff:
    if not isinstance(value, Backoff):
        raise ValueError(f"expected Backoff(first, factor, cap), got {value!r}")  # noqa: TRY004 - a problem like the others
    first, cap, factor = value.first_seconds, value.cap_seconds, value.factor
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 1 <= factor <= MOST_FACTOR:
        raise ValueError(f"expected a factor of 1 to {MOST_FACTOR:.0f}, got {factor!r}")
    if not 0 <= first <= cap <= LONGEST_SECONDS:
        raise ValueError(
            f"expected 0 <= first <= cap <= {LONGEST_SECONDS:.0f} seconds (30 days), got first {first:g}, cap {cap:g}"
        )
    return Backoff(first, float(factor), cap)


def _exceptions(value: object) -> tuple[type[Exception], ...]:
    classes = value if isinstance(value, tuple) else (value,)
    for chosen in classes:
        if not (isinstance(chosen, type) and issubclass(chosen, Exception)):
            raise ValueError(f"expected subclasses of Exception, got {chosen!r}")  # noqa: TRY004 - as above
    return classes


def _retry_on(value: object) -> tuple[type[Exception], ...]:
    classes = _exceptions(value)
    for final in (Failed, Canceled):
        if any(issubclass(chosen, final) for chosen in classes):
            raise ValueError(f"{final.__name__} is never followed by another attempt")
    return classes


def _name(value: object, what: str = "a queue") -> str:
    if not isinstance(value, str):
        raise ValueError(f"the name of {what} is text, got {value!r}")  # noqa: TRY004 - a problem like the others
    if not 1 <= len(value.encode()) <= 255 or "\0" in value:
        raise ValueError(f"the name of {what} has 1 to 255 bytes, none of them NUL, got {value!r}")
    return value


def _keep_result(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"expected True or False, got {value!r}")  # noqa: TRY004 - a problem like the others
    return value


_READ: Final[dict[str, tuple[str, Callable[[object], object]]]] = {
    "slot": ("slot", _one_of("thread", "process")),
    "time_limit": ("time_limit_seconds", _time_limit),
    "max_attempts": ("max_attempts", _max_attempts),
    "backoff": ("backoff", _backoff),
    "retry_on": ("retry_on", _retry_on),
    "fail_on": ("fail_on", _exceptions),
    "on_crash": ("on_crash", _one_of("fail", "retry")),
    "queue": ("queue", _name),
    "keep_result": ("keep_result", _keep_result),
}
"""Each option of a declaration: the field of `Options` that it becomes, and how it is read."""
