"""Every setting of an installation: one table, read from the environment, checked before anything listens.

The two programs and `python -m sql` share one environment, so they share one table: a name that starts with
TALLY_ and is not in it is a mistake, whoever reads it. `read` names every problem at once. A field's name gives
the variable's: `max_body_bytes` is TALLY_MAX_BODY_BYTES, and a time, `beat`, is TALLY_BEAT_SECONDS.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any, Final

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

PREFIX: Final = "TALLY_"
TESTS_PREFIX: Final = "TALLY_TEST_"
"""What the test suite is told; no program reads it."""

KEEP_UNITS: Final = {
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
LEAST_KEEP: Final = timedelta(seconds=60)
"""Whoever lost the reply to a COMMIT looks for the row; meanwhile it must not be removed."""
LONGEST_KEEP: Final = timedelta(days=36_500)


class BadSettings(Exception):
    """What is wrong with the settings: every problem, one line each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def _count(default: int, reason: str, *, least: int = 1, most: int = 2**31 - 1) -> Any:
    return field(default=default, metadata={"reason": reason, "least": least, "most": most})


def _seconds(default: float, reason: str, *, least: float = 0.01, most: float = 86_400) -> Any:
    metadata = {"reason": reason, "least": least, "most": most}
    return field(default=timedelta(seconds=default), metadata=metadata)


def _text(default: str, reason: str) -> Any:
    return field(default=default, metadata={"reason": reason})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings, with name, default, unit and reason on each field."""

    database_url: str = field(
        default="",
        metadata={
            "name": "DATABASE_URL",
            "reason": "your PostgreSQL; without it the embedded server is used",
        },
    )
    database_direct_url: str = field(
        default="",
        metadata={
            "name": "DATABASE_DIRECT_URL",
            "reason": "the same database without a pooler, for dispatchers and migrations; DATABASE_URL if not given",
        },
    )
    port: int = field(
        default=8000,
        metadata={
            "name": "PORT",
            "reason": "port of the API on 127.0.0.1, where --listen is not given",
            "least": 0,
            "most": 65_535,
        },
    )
    log_level: str = _text("info", "debug, info, warning or error")

    connect: timedelta = _seconds(2, "longest wait for a connection, for each address of the database", least=2)
    statement: timedelta = _seconds(2, "longest run of one statement, and longest idle transaction")
    backoff: timedelta = _seconds(0.5, "longest wait between two attempts to connect; the first is 25 ms", least=0.025)
    drain: timedelta = _seconds(25, "from the first SIGTERM to the end of the process, whatever happens", least=0.5)
    drain_reserve: timedelta = _seconds(2.5, "last part of the drain, kept for writing what did not end")

    listen: str = _text("", "address of the API, host:port; port 0 lets the system choose")
    admin: str = _text("", "loopback address of /healthz and /readyz; 127.0.0.1 and the API's port + 1000 if not given")
    allow_anonymous: bool = field(
        default=False, metadata={"reason": "1 lets the API listen beyond loopback, where anybody may submit"}
    )
    request: timedelta = _seconds(2.5, "longest time to answer a request once it was read", least=0.6)
    request_threads: int = _count(64, "requests answered at the same time", most=512)
    database_connections: int = _count(
        4,
        "connections of a web process for reads and cancels (which use half of them at most), besides admission's two",
    )
    max_connections: int = _count(1000, "HTTP connections open at the same time")
    idle: timedelta = _seconds(20, "an HTTP connection without a complete request is closed after this", least=0.1)
    max_body_bytes: int = _count(1024 * 1024, "largest request body", most=256 * 1024 * 1024)
    max_depth: int = _count(64, "deepest nesting of arrays and objects in an input or a result", most=200)

    slots: int = _count(8, "tasks a dispatcher runs at the same time", most=1024)
    queue: str = _text("default", "the queue a dispatcher serves")
    tasks: str = _text("", "modules that declare kinds, separated by commas")
    beat: timedelta = _seconds(1, "how often a dispatcher says that it lives")
    cancel_lookup: timedelta = _seconds(1, "how often accepted cancels are looked for, besides NOTIFY")
    sweep: timedelta = _seconds(2, "how often the queue is looked at, besides NOTIFY")
    grace: timedelta = _seconds(6, "a dispatcher unlocked and not seen beating for this long is lost")
    stall: timedelta = _seconds(
        60,
        "a dispatcher not seen beating for this long is lost, locked or not; "
        "a thread of it without a turn for this long ends it",
        least=1,
    )
    keep: str = _text("7d", "how long ended tasks are kept, in s, m, h or d (60s at least), or forever")
    stop_grace: timedelta = _seconds(
        5, "how long a body in a process has to stop after SIGTERM, at a cancel or its time limit; then it is killed"
    )
    process_tasks: int = _count(10_000, "tasks that a process runs before another takes its place")
    process_mib: int = _count(
        1024, "resident memory, in MiB, of a process after a task, above which another takes its place"
    )
    max_words: int = _count(1_000_000, "text.stats fails a text of more words", least=0)
    max_result_bytes: int = _count(1024 * 1024, "largest result, as JSON", most=256 * 1024 * 1024)
    max_detail_bytes: int = _count(16 * 1024, "longest error.detail; longer ones are cut", least=256)

    @property
    def direct_url(self) -> str:
        return self.database_direct_url or self.database_url

    @property
    def keep_period(self) -> timedelta | None:
        """How long ended tasks are kept; None for ever. Raises `ValueError`."""
        if self.keep == "forever":
            return None
        if not re.fullmatch(r"[0-9]{1,9}[smhd]", self.keep, re.ASCII):
            raise ValueError(f"expected a number of s, m, h or d, as in 7d, or forever, got {self.keep!r}")
        period = int(self.keep[:-1]) * KEEP_UNITS[self.keep[-1]]
        if not LEAST_KEEP <= period <= LONGEST_KEEP:
            raise ValueError(f"expected 60s to 36500d, got {self.keep}")
        return period

    @property
    def database_addresses(self) -> int:
        """How many addresses a connection attempt may try, one after the other."""
        try:
            given = conninfo_to_dict(self.direct_url)
        except ProgrammingError:
            return 1
        return len(str(given.get("hostaddr") or given.get("host") or "").split(","))


def variable(name: str) -> str:
    """Return the environment variable of a field, `beat` to TALLY_BEAT_SECONDS."""
    (chosen,) = (item for item in fields(Settings) if item.name == name)
    suffix = "_SECONDS" if chosen.type is timedelta else ""
    return str(chosen.metadata.get("name", f"{PREFIX}{name.upper()}{suffix}"))


def read(environ: Mapping[str, str], flags: Mapping[str, str | None] | None = None) -> Settings:
    """Return the settings of an environment; a flag, by field name, wins. Raises `BadSettings`.

    An empty value counts as not given.
    """
    problems = [
        f"{name}: there is no such setting"
        for name in sorted(environ)
        if name.startswith(PREFIX)
        and not name.startswith(TESTS_PREFIX)
        and name not in {variable(item.name) for item in fields(Settings)}
    ]
    values: dict[str, object] = {}
    for item in fields(Settings):
        flag = (flags or {}).get(item.name)
        source = f"--{item.name.replace('_', '-')}" if flag is not None else variable(item.name)
        text = flag if flag is not None else environ.get(source, "")
        if text == "" and flag is None:
            continue
        try:
            values[item.name] = _parse(item.type, text, item.metadata)
        except ValueError as error:
            problems.append(f"{source}: {error}")
    settings = Settings(**values)  # type: ignore[arg-type]
    problems.extend(_disagreements(settings))
    if problems:
        raise BadSettings(problems)
    return settings


def _parse(kind: object, text: str, limits: Mapping[str, Any]) -> object:
    if kind is bool:
        if text not in {"0", "1"}:
            raise ValueError(f"expected 0 or 1, got {text!r}")
        return text == "1"
    if kind is str:
        if "\0" in text:
            raise ValueError("expected text without NUL")
        # Raises a ValueError of its own for bytes of the environment that are not UTF-8.
        text.encode("utf-8")
        return text
    number: float
    if kind is int:
        if not re.fullmatch(r"-?[0-9]{1,18}", text, re.ASCII):
            raise ValueError(f"expected a whole number, got {text!r}")
        number = int(text)
    else:
        if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text, re.ASCII):
            raise ValueError(f"expected a number of seconds, got {text!r}")
        number = float(text)
    if not limits["least"] <= number <= limits["most"]:
        raise ValueError(f"expected {limits['least']} to {limits['most']}, got {text}")
    return int(number) if kind is int else timedelta(seconds=number)


def _disagreements(settings: Settings) -> list[str]:
    problems = []
    for name in ("database_url", "database_direct_url"):
        try:
            ports = str(conninfo_to_dict(getattr(settings, name)).get("port") or "").split(",")
        except ProgrammingError:
            # The driver's own message may quote the password.
            problems.append(f"{variable(name)}: not a PostgreSQL URL or connection string")
        else:
            if not all(port == "" or (re.fullmatch(r"[0-9]{1,5}", port) and 0 < int(port) < 65_536) for port in ports):
                # The driver looks at it only when it connects, and that is tried for ever.
                problems.append(f"{variable(name)}: expected a port of 1 to 65535")
    if settings.database_direct_url and not settings.database_url and not problems:
        problems.append(f"{variable('database_url')}: needed beside {variable('database_direct_url')}")
    if settings.log_level.lower() not in {"debug", "info", "warning", "error"}:
        problems.append(f"{variable('log_level')}: expected debug, info, warning or error")
    if settings.drain_reserve >= settings.drain:
        problems.append(f"{variable('drain_reserve')}: must be shorter than {variable('drain')}")
    if not 1 <= len(settings.queue.encode()) <= 255:
        problems.append(f"{variable('queue')}: expected 1 to 255 bytes")
    try:
        kept = settings.keep_period
    except ValueError as error:
        problems.append(f"{variable('keep')}: {error}")
    else:
        if kept is not None and kept <= settings.request:
            problems.append(f"{variable('keep')}: must be longer than {variable('request')}")
    connecting = settings.database_addresses * settings.connect
    for name, least, reason in (
        ("grace", 2 * (connecting + settings.backoff), "twice the longest time a reconnect may take"),
        ("stall", 2 * (connecting + settings.statement), "twice the longest time a call may take"),
        # Whoever is given so long must be seen to miss several beats, not one.
        ("grace", 4 * settings.beat, f"four times {variable('beat')}"),
        ("stall", 4 * settings.beat, f"four times {variable('beat')}"),
    ):
        given = getattr(settings, name)
        if given < least and not any(problem.startswith(variable(name)) for problem in problems):
            expected = f"expected at least {least.total_seconds():g}, {reason}"
            problems.append(f"{variable(name)}: {expected}, got {given.total_seconds():g}")
    return problems
