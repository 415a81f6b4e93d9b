"""The two lanes in which terminal writes go (see `dispatcher.writes`).

The first lane takes everything that has finished and writes it in one call. While the database cannot be reached,
or is read-only, it tries the whole batch again. A batch that fails in any other way is split, since one row may be
the reason, whatever the error; a row that fails alone, or that somebody else holds locked, and a batch that has taken
all its time, move to the second lane, which has its own connection and tries each of its rows alone, round after
round: the first lane never waits for it.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Event
from typing import Final, TypeVar

from tenacity import RetryError

from dispatcher.messages import VERDICTS, Key, Outcome, Refusal, Report, Verdict
from dispatcher.retry import is_read_only, is_timeout, terminal_write
from dispatcher.sessions import Caller
from dispatcher.writes import LOCKED, Written, refuse, unstorable, write
from sql.connect import FIRST_BACKOFF_SECONDS
from sql.errors import RowRefused, TallyError

log = logging.getLogger("tally.outcomes")

T = TypeVar("T")

Acknowledge = Callable[[list[tuple[Report, Verdict]]], None]

TURN_SECONDS: Final = 1.0


class FirstLane:
    """Writes what finishes together, together."""

    def __init__(
        self,
        caller: Caller,
        acknowledge: Acknowledge,
        pass_on: Callable[[Outcome], None],
        give_up: Event,
        turn: Callable[[], None],
    ) -> None:
        self._caller = caller
        self._acknowledge = acknowledge
        self._pass_on = pass_on
        self._give_up = give_up
        self._turn = turn
        self._finished: SimpleQueue[Outcome] = SimpleQueue()
        self.put = self._finished.put

    def run(self) -> None:
        """Write until told to give up."""
        while not self._give_up.is_set():
            self._turn()
            batch = taken(self._finished, wait=True)
            if batch:
                self._write(batch)
        self._caller.close()

    def _write(self, batch: list[Outcome]) -> None:
        try:
            # To be ready for the next tries costs more than the first one, which is nearly always the last.
            self._try(batch)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again
            log.warning("write.failed tries=1 error=%s", error)
            if not self._give_up.wait(FIRST_BACKOFF_SECONDS):
                self._write_again(batch)
        if batch:
            log.warning("outcomes.given_up tasks=%s", [outcome.id for outcome in batch])

    def _write_again(self, batch: list[Outcome]) -> None:
        with suppress(RetryError):
            for attempt in terminal_write(self._give_up):
                with attempt:
                    batch += taken(self._finished)
                    self._try(batch)

    def _try(self, batch: list[Outcome]) -> None:
        """Write all of the batch; raises while the world is away, with what is unwritten left in it."""
        self._turn()
        self._caller.ready()
        try:
            answered = write(self._caller, batch)
        except TallyError as error:
            if is_read_only(error):
                raise
            log.warning("outcomes.failed tasks=%d error=%s", len(batch), error)
            if len(batch) == 1 or is_timeout(error):
                self._pass_all_on(batch)
            else:
                self._split(batch)
            return
        self._settle(answered)
        batch.clear()

    def _split(self, batch: list[Outcome]) -> None:
        while batch:
            self._try([batch[-1]])
            batch.pop()

    def _pass_all_on(self, batch: list[Outcome]) -> None:
        # Tried alone here, each row that is slow would keep what finishes meanwhile for as long again.
        while batch:
            self._pass_on(batch.pop())

    def _settle(self, answered: list[Written]) -> None:
        written: list[tuple[Report, Verdict]] = []
        for outcome, verdict in answered:
            if verdict == LOCKED:
                self._pass_on(outcome)
            else:
                written.append((outcome, VERDICTS[verdict]))
        self._acknowledge(written)


class SecondLane:
    """Tries each stubborn row alone, round after round."""

    def __init__(self, caller: Caller, acknowledge: Acknowledge, give_up: Event, drop_refusals: Event) -> None:
        self._caller = caller
        self._acknowledge = acknowledge
        self._give_up = give_up
        self._drop_refusals = drop_refusals
        self._arrived: SimpleQueue[Report] = SimpleQueue()
        self._pending: dict[Key, Report] = {}
        self.put = self._arrived.put

    @property
    def pending(self) -> int:
        return len(self._pending)

    def run(self) -> None:
        """Write until told to give up."""
        while not self._give_up.is_set():
            self._take(wait=True)
            if any(isinstance(report, Outcome) for report in self._pending.values()):
                # It has just been tried in the first lane, or with others.
                self._give_up.wait(FIRST_BACKOFF_SECONDS)
            if self._pending:
                self._write()
        self._caller.close()

    def _take(self, *, wait: bool = False) -> None:
        # Before those that are here, of which many may be slow.
        self._pending = {report.key: report for report in taken(self._arrived, wait=wait)} | self._pending

    def _write(self) -> None:
        try:
            for attempt in terminal_write(self._give_up):
                with attempt:
                    self._round()
        except RetryError:
            log.warning("outcomes.given_up tasks=%s", [report.id for report in self._pending.values()])

    def _round(self) -> None:
        """Try each pending row, up to the first that takes all its time; raises the last error while any is left."""
        failure: Exception | None = None
        if self._drop_refusals.is_set():
            self._drop([report for report in self._pending.values() if isinstance(report, Refusal)])
        for report in list(self._pending.values()):
            if self._give_up.is_set():
                break
            self._caller.ready()
            try:
                written = self._try(report)
            except TallyError as error:
                failure = error
                if is_read_only(error):
                    raise
                if is_timeout(error):
                    # To the end, and a new round: those that fail at once are not kept waiting by all that do not.
                    self._pending[report.key] = self._pending.pop(report.key)
                    break
            else:
                del self._pending[report.key]
                self._acknowledge([written])
        if failure is not None:
            # What has come meanwhile has failed elsewhere just now: it too waits before it is tried again.
            self._take()
            raise failure

    def _drop(self, refusals: list[Refusal]) -> None:
        for refusal in refusals:
            self._acknowledge([(self._pending.pop(refusal.key), Verdict.DROPPED)])

    def _try(self, report: Report) -> tuple[Report, Verdict]:
        """Write it, and return it as it was written."""
        if isinstance(report, Refusal):
            return report, refuse(self._caller, report)
        try:
            ((written, verdict),) = write(self._caller, [report])
        except RowRefused:
            if self._is_storable(report):
                raise
            self._pending[report.key] = report = unstorable(report)
            ((written, verdict),) = write(self._caller, [report])
        if verdict == LOCKED:
            raise Locked(report.id)
        return written, VERDICTS[verdict]

    def _is_storable(self, outcome: Outcome) -> bool:
        try:
            self._caller.call("storable", value=outcome.result)
        except RowRefused:
            return False
        return True


class Locked(TallyError):
    """Somebody holds the task's row."""

    def __init__(self, task_id: int) -> None:
        super().__init__(f"somebody holds the row of task {task_id}")


def taken(queue: SimpleQueue[T], *, wait: bool = False) -> list[T]:
    """Take everything that waits; with `wait`, wait a turn for the first."""
    items: list[T] = []
    try:
        if wait:
            items.append(queue.get(timeout=TURN_SECONDS))
        while True:
            items.append(queue.get_nowait())
    except Empty:
        return items
