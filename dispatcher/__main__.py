"""`python -m dispatcher`: settings, logging, signals, run, exit status.

Exit status: 0 everything drained · 1 stopped with work lost or by a fault · 2 bad configuration.
"""

import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from time import monotonic
from uuid import uuid4

from dispatcher import presence, text_stats, wire
from dispatcher.brood import Bounds
from dispatcher.claims import Claims
from dispatcher.endings import Limits
from dispatcher.kinds import KINDS, load
from dispatcher.loop import Loop, Times
from dispatcher.messages import Inbox, ThreadEnded, Word
from dispatcher.outcomes import Outcomes
from dispatcher.publishing import published
from dispatcher.pulse import Pulse
from dispatcher.recovery import Recovery
from dispatcher.retention import Retention
from dispatcher.session import Rhythm, Session
from dispatcher.sessions import Caller, Database
from dispatcher.settings import modules, read_settings
from dispatcher.slots import Slots
from dispatcher.supervisor import Supervisor, is_needed
from dispatcher.watch import Watch
from sql import embedded
from sql.errors import NotDirect
from sql.log import start_log
from sql.migrate import SchemaTooNew
from sql.process import end_now, end_overdue, run_to_the_end
from sql.ready import await_schema
from sql.settings import BadSettings, Settings

log = logging.getLogger("tally.dispatcher")


def main() -> int:
    """Run a dispatcher to its end."""
    inbox = Inbox()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: inbox.signal())
    problems = []
    try:
        settings = read_settings(sys.argv[1:], os.environ)
        text_stats.declare(settings.max_words)
        problems = load(modules(settings))
    except BadSettings as error:
        problems = error.problems
    if problems:
        print(*problems, sep="\n", file=sys.stderr)
        return 2
    start_log(settings.log_level)
    # The call that a second signal came into may take its time; then the reserve is left.
    times = (settings.drain.total_seconds(), (settings.statement + settings.drain_reserve).total_seconds())
    Thread(target=end_overdue, args=(inbox.await_signal, *times), name="deadline", daemon=True).start()
    database = Database(settings.direct_url or embedded.url(), uuid4(), settings.connect, settings.statement)
    try:
        if not await_schema(lambda: database.connect("start"), settings, lambda seconds: stops(inbox, seconds)):
            return 0
    except (SchemaTooNew, NotDirect) as error:
        print(f"python -m dispatcher: {error}", file=sys.stderr)
        return 2 if isinstance(error, NotDirect) else 1
    return Dispatcher(settings, database, inbox).run()


def stops(inbox: Inbox, seconds: float) -> bool:
    """Wait, at most so long, for a signal."""
    return Word.SIGNAL in inbox.get(seconds)


class Dispatcher:
    """The parts of one running dispatcher, wired together."""

    def __init__(self, settings: Settings, database: Database, inbox: Inbox) -> None:
        self._settings = settings
        self._database = database
        self._inbox = inbox
        limits = Limits(settings.max_depth, settings.max_result_bytes, settings.max_detail_bytes)
        here = presence.here()
        self._supervisor: Supervisor | None = None
        threads = ["loop", "session", "outcomes"]
        if is_needed(KINDS):
            threads.append("supervisor")
            self._supervisor = Supervisor(
                KINDS,
                setup(settings),
                limits,
                bounds(settings),
                begin=lambda held: slots.begin(held),  # noqa: PLW0108 - the slots are made below
                unsure=lambda held: slots.unsure(held),  # noqa: PLW0108 - the same
                end=lambda held, outcome: slots.end(held, outcome),  # noqa: PLW0108 - the same
                turn=lambda: pulse.turn("supervisor"),
                turn_seconds=settings.stall.total_seconds() / 4,
            )
        pulse = Pulse(threads, settings.stall.total_seconds(), monotonic)
        self._outcomes = Outcomes(
            Caller(database, "outcomes"),
            Caller(database, "outcomes-2"),
            lambda written: self._loop.acknowledge(written),  # noqa: PLW0108 - the loop is made below
            lambda: pulse.turn("outcomes"),
        )
        slots = Slots(
            settings.slots,
            KINDS,
            limits,
            settings.grace.total_seconds() / 2,
            supervisor=self._supervisor,
            on_end=self._outcomes.put,
            on_unsure=inbox.put,
        )
        caller = Caller(database, "loop")
        claims = Claims(caller, settings.queue, lambda: self._loop.is_stopping())  # noqa: PLW0108 - the loop is made below
        self._loop = Loop(
            inbox,
            caller,
            claims,
            slots,
            self._outcomes,
            KINDS,
            Times(settings.sweep, settings.backoff, settings.drain, settings.drain_reserve),
            limits,
            turn=lambda: pulse.turn("loop"),
            stalled=pulse.stalled,
        )
        self._session = Session(
            database,
            here,
            settings.slots,
            settings.queue,
            published(KINDS),
            Rhythm(settings.beat, settings.cancel_lookup, settings.backoff),
            inbox,
            hint=claims.cursor.hint,
            cancel=slots.cancel,
            turn=lambda: pulse.turn("session"),
            may_beat=lambda: may_beat(pulse),
            trouble=self._trouble,
        )
        self._recovery = Recovery(
            Caller(database, "recovery"),
            Watch(here, settings.grace, settings.stall, settings.beat),
            settings.backoff,
            may_judge=lambda: not self._loop.is_condemned,
            attending_since=lambda: self._session.attending_since,
        )
        self._retention = Retention(Caller(database, "retention"), settings.keep_period)

    def run(self) -> int:
        """Bind the name, enter, work, drain; returns the exit status."""
        name = presence.hold_name(self._database.dispatcher)
        first, second = self._outcomes.lanes
        self._start("session", self._session.run)
        status = self._enter()
        if status is None:
            if self._supervisor is not None:
                self._supervisor.name = name
                self._start("supervisor", self._supervisor.run)
            self._start("outcomes", first.run)
            self._start("outcomes-2", second.run)
            self._start("recovery", self._recovery.run)
            self._start("retention", self._retention.run, vital=False)
            settings = self._settings
            ready = f"ready dispatcher id={self._database.dispatcher} slots={settings.slots} queue={settings.queue}"
            with suppress(OSError):  # whoever read our output may be gone
                print(ready, flush=True)
            status = self._loop.run()
            if self._supervisor is not None:
                self._supervisor.stop()
        self._stop()
        if name is not None:
            name.close()
        return status

    def _enter(self) -> int | None:
        """Wait until the session has entered this dispatcher; the exit status when it is stopped before."""
        signaled = False
        while not self._session.entered.is_set():
            for message in self._inbox.get(1.0):
                if message is Word.SIGNAL:
                    if signaled or self._session.withdraw():
                        return int(signaled)
                    signaled = True
                if message is Word.CONDEMNED or isinstance(message, ThreadEnded):
                    log.error("dispatcher.not_entered why=%s", message)
                    return 1
        if signaled:
            # It was entering just then: the loop has to let it leave.
            self._inbox.put(Word.SIGNAL)
        return None

    def _start(self, name: str, run: Callable[[], None], *, vital: bool = True) -> None:
        Thread(target=self._watched, args=(name, run, vital), name=name, daemon=True).start()

    def _watched(self, name: str, run: Callable[[], None], vital: bool) -> None:
        try:
            run()
        except BaseException as error:  # the process must not go on without a vital thread
            log.exception("thread.failed thread=%s", name)
            if vital:
                self._inbox.put(ThreadEnded(name, repr(error)))

    def _trouble(self) -> str | None:
        return self._loop.trouble or self._outcomes.trouble or (self._supervisor.trouble if self._supervisor else None)

    def _stop(self) -> None:
        """Tell every thread to end. Nothing is left to write, and the kernel closes what they still wait on."""
        self._outcomes.give_up.set()
        self._session.stop.set()
        self._recovery.stop.set()
        self._retention.stop.set()


def setup(settings: Settings) -> wire.Setup:
    """Return what children are told."""
    return wire.Setup(
        modules(settings),
        [os.fsencode(place) for place in sys.path],
        logging.getLogger().level,
        settings.max_words,
        settings.max_depth,
        settings.max_result_bytes,
        settings.max_detail_bytes,
    )


def bounds(settings: Settings) -> Bounds:
    """Return what children may take."""
    return Bounds(
        slots=settings.slots,
        processors=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        tasks=settings.process_tasks,
        resident_bytes=settings.process_mib * 2**20,
        grace_seconds=settings.stop_grace.total_seconds(),
    )


def may_beat(pulse: Pulse) -> bool:
    """A dispatcher of which a part is stuck must not be taken for alive: it ends, here, since nobody else may."""
    stalled = pulse.stalled()
    if stalled:
        log.critical("dispatcher.stalled threads=%s", ",".join(stalled))
        end_now()
    return True


if __name__ == "__main__":
    run_to_the_end(main)
