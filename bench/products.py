"""The products that `peers` and `peer_pickup` compare, ours among them."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, Protocol

import psycopg
from psycopg.conninfo import conninfo_to_dict

from bench.installed import SCRIPTS, Command, NotRun, Redis, run, running
from bench.pickup import SLOTS, WARM_UP, posted
from bench.stage import Stage, text

EVERY_SECONDS: Final = 0.05
LONGEST_SECONDS: Final = 120.0


class Product(Protocol):
    """Filled, then worked, until its own store shows no open job; or submitted to while it is idle.

    `work` leaves in `mark` the moment of the first body, by CLOCK_MONOTONIC in nanoseconds. `picked_up` returns
    milliseconds from just before a submit to the beginning of its body, 20 ms apart, and uses `mark` as it likes.
    """

    def fill(self, tasks: int) -> None: ...
    def work(self, mark: Path) -> AbstractContextManager[object]: ...
    def is_open(self) -> bool: ...
    def picked_up(self, submits: int, mark: Path) -> list[float]: ...


def finished(product: Product, mark: Path) -> int:
    """Wait until it has no open job; return the moment. Raises `NotRun`, with its last words, if that never comes."""
    end = time.monotonic() + LONGEST_SECONDS
    while product.is_open():
        if time.monotonic() > end:
            raise NotRun(f"tasks are open after {LONGEST_SECONDS:g} s: {_last_words(mark)}")
        time.sleep(EVERY_SECONDS)
    return time.monotonic_ns()


def _last_words(mark: Path) -> str:
    log = mark.with_suffix(".log")
    said = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return said[-1] if said else "it said nothing"


class Ours:
    """One dispatcher; and the web, where it is submitted to."""

    def __init__(self, stage: Stage, slots: int) -> None:
        self._stage = stage
        self._slots = slots

    def fill(self, tasks: int) -> None:
        self._stage.empty()
        self._stage.fill(tasks, kind="marked")

    def work(self, mark: Path) -> AbstractContextManager[object]:
        return self._stage.dispatcher(self._slots, BENCH_MARK=str(mark))

    def is_open(self) -> bool:
        return self._stage.run("open") == (True,)

    def picked_up(self, submits: int, mark: Path) -> list[float]:  # noqa: ARG002 - `posted` has stamps of its own
        self._stage.empty()
        with self._stage.web() as (_, address), self._stage.dispatcher(SLOTS):
            return posted(self._stage, address, submits)


class Peer(ABC):
    """A product whose script knows `fill N`, and `submit N` by the product's own client, one every 20 ms."""

    @abstractmethod
    def fill(self, tasks: int) -> None: ...

    @abstractmethod
    def submit(self, tasks: int) -> None: ...

    @abstractmethod
    def work(self, mark: Path, *, idle: bool = False) -> AbstractContextManager[object]:
        """Work at the setting that drains best, or at the one that waits best for a single job."""

    @abstractmethod
    def is_open(self) -> bool: ...

    def picked_up(self, submits: int, mark: Path) -> list[float]:
        self.fill(0)
        mark.write_text("")
        with self.work(mark, idle=True):
            # The first alone: once it has ended, the worker is up.
            for tasks in (1, WARM_UP + submits):
                self.submit(tasks)
                finished(self, mark)
        moments = sorted([*map(int, line.split())] for line in mark.read_text().splitlines())
        if len(moments) != 1 + WARM_UP + submits:
            raise NotRun(f"{len(moments)} bodies began: {_last_words(mark)}")
        return [(began - before) / 1e6 for before, began in moments[1 + WARM_UP :]]


class OnPostgres(Peer):
    """In a database of its own, made anew for each fill; its script knows `install` and `work BATCH` too."""

    def __init__(self, stage: Stage, name: str, command: Command, batch: int, idle_batch: int, **environ: str) -> None:
        self._stage = stage
        self._name = name
        self._command = command
        self._batches = {False: batch, True: idle_batch}
        at = conninfo_to_dict(stage.url)
        self._environ = {"PGHOST": str(at["host"]), "PGUSER": str(at["user"]), "PGDATABASE": name, **environ}
        self._connection: psycopg.Connection

    def fill(self, tasks: int) -> None:
        for each in ("drop database if exists {} with (force)", "create database {}"):
            self._stage.connection.execute(each.format(self._name).encode())
        for step, count in (("install", 0), ("fill", tasks)):
            run([*self._command, step, str(count)], self._environ)
        with self._connect() as connection:
            connection.execute("vacuum analyze")
            connection.execute("checkpoint")

    def submit(self, tasks: int) -> None:
        run([*self._command, "submit", str(tasks)], self._environ)

    @contextmanager
    def work(self, mark: Path, *, idle: bool = False) -> Iterator[None]:
        command = [*self._command, "work", str(self._batches[idle])]
        environ = {**self._environ, "BENCH_MARK": str(mark)}
        with self._connect() as self._connection, running(command, environ, mark.with_suffix(".log")):
            yield

    def is_open(self) -> bool:
        return self._connection.execute(text(f"open_{self._name}")).fetchone() == (True,)

    def _connect(self) -> psycopg.Connection:
        return psycopg.connect(self._stage.url, dbname=self._name, autocommit=True)


class OnRedis(Peer):
    """Celery, prefork with two processes, idle or not."""

    OPTIONS: Final = "-P prefork -c 2 -Q q -l ERROR --without-gossip --without-mingle --without-heartbeat"

    def __init__(self, redis: Redis, python: Path) -> None:
        self._redis = redis
        self._python = python
        self._environ = {"BENCH_BROKER": redis.url, "PYTHONPATH": str(SCRIPTS)}

    def fill(self, tasks: int) -> None:
        self._redis.number("DEL q unacked")
        self._script("fill", tasks)

    def submit(self, tasks: int) -> None:
        self._script("submit", tasks)

    def work(self, mark: Path, *, idle: bool = False) -> AbstractContextManager[object]:  # noqa: ARG002 - one setting
        command: Command = [self._python, "-m", "celery", "-A", "celery_peer", "worker", *self.OPTIONS.split()]
        return running(command, {**self._environ, "BENCH_MARK": str(mark)}, mark.with_suffix(".log"))

    def is_open(self) -> bool:
        return self._redis.number("LLEN q") + self._redis.number("HLEN unacked") > 0

    def _script(self, step: str, tasks: int) -> None:
        run([self._python, SCRIPTS / "celery_peer.py", step, str(tasks)], self._environ)
