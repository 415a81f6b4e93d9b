"""The loop: one inbox, one thing after another, in the main thread. What it decides, in the order it lives:

    claim     as much as there are free slots, when woken, when a slot was freed and there may be more, at a sweep;
              who is woken by name and cannot claim passes it on
    start     each claim as soon as it is committed
    sweep     look at the whole queue, and for rows under this dispatcher's id that it does not hold
    release   tasks whose time for another attempt has come
    drain     at the first signal: claim nothing more, begin what was claimed, wait for every outcome
    give up   at the drain deadline or a second signal: bodies that still run are FAILED, exit status 1; where another
              attempt may follow a crash, they are left to recovery: it must not begin before this process has ended
    leave     only a dispatcher that the database lets leave exits 0

A dispatcher that was condemned writes nothing more: it raises every cancel flag and ends, with status 1.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from time import monotonic
from typing import Final

from dispatcher.claims import Claims
from dispatcher.drain import NEVER, Drain
from dispatcher.due import DueTasks
from dispatcher.endings import Limits, crashed, failed
from dispatcher.kinds import Task
from dispatcher.lost import LostTasks
from dispatcher.messages import Claim, Ending, Inbox, Key, Message, Outcome, Refusal, Report, ThreadEnded, Verdict, Word
from dispatcher.outcomes import Outcomes, tell
from dispatcher.sessions import Caller
from dispatcher.slots import Slots
from sql.connect import backoff_seconds
from sql.documents import storable_text
from sql.errors import Condemned, DatabaseAway, Misconfigured, TallyError, TasksLeft
from sql.states import TaskState

log = logging.getLogger("tally.loop")

CONDEMNED_WAIT_SECONDS: Final = 0.1
LONGEST_WAIT_SECONDS: Final = 1.0

FEWEST_AT_ONCE: Final = 64
"""Many slots are claimed for by halves: one half's tasks are claimed while the other's outcomes are written. Where so
many fit into one claim, another call would cost more than that saves."""

SELDOM_SECONDS: Final = 60.0
"""How often a dispatcher none of whose kinds is attempted again looks for tasks that wait to be."""


@dataclass(frozen=True, slots=True)
class Times:
    """What the loop waits for."""

    sweep: timedelta
    backoff: timedelta
    drain: timedelta
    drain_reserve: timedelta


class Loop:
    """Owns the claims; everything it is told comes through the inbox."""

    def __init__(
        self,
        inbox: Inbox,
        caller: Caller,
        claims: Claims,
        slots: Slots,
        outcomes: Outcomes,
        kinds: Mapping[str, Task],
        times: Times,
        limits: Limits,
        *,
        turn: Callable[[], None],
        stalled: Callable[[], list[str]],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._inbox = inbox
        self._caller = caller
        self._claims = claims
        self._slots = slots
        self._outcomes = outcomes
        self._kinds = kinds
        self._times = times
        self._limits = limits
        self._turn = turn
        self._stalled = stalled
        self._clock = clock
        self._unsure: list[Claim] = []
        self._lost_tasks = LostTasks(caller, slots.attempts, self._may_go_on, clock)
        repeats = any(task.options.max_attempts > 1 for task in kinds.values())
        look_seconds = times.sweep.total_seconds() if repeats else SELDOM_SECONDS
        self._due_tasks = DueTasks(caller, claims.queue, look_seconds, clock)
        self._look = False
        self._woken_by_name = False
        self._next_sweep = clock()
        self._next_try = clock()
        self._failures = 0
        self._drain = Drain(times.drain, times.drain_reserve)
        self._gave_up = False
        self._left: set[Key] = set()
        """Claims whose rows stay RUNNING when this process ends."""
        self._condemned = False
        self._lost = False
        self.trouble: str | None = None
        """What keeps this dispatcher from claiming; reported with every beat."""

    def is_stopping(self) -> bool:
        """Asked between the steps of whatever takes long, which is a turn too."""
        self._turn()
        return self._drain.has_begun or self._condemned or self._inbox.signaled_at is not None

    def _may_go_on(self) -> bool:
        """A signal that was not heard yet goes first; once it drains, this is what it waits for."""
        return not self.is_stopping() or self._drain.has_begun

    @property
    def is_condemned(self) -> bool:
        return self._condemned

    def run(self) -> int:
        """Run until drained, condemned or out of time. Returns the exit status."""
        while True:
            self._turn()
            for message in self._inbox.get(self._wait_seconds()):
                self._hear(message)
            status = self._end()
            if status is not None:
                log.info("dispatcher.ended status=%d busy=%d", status, self._slots.busy)
                return status
            try:
                self._act()
            except Condemned:
                self._hear(Word.CONDEMNED)
            except DatabaseAway as error:
                self._back_off(error)
            except TallyError as error:
                # Misconfigured, or something nobody listed: no task's fault. Look again at the next sweep.
                self._back_off(error)
                self._next_try = self._next_sweep

    def acknowledge(self, written: list[tuple[Report, Verdict]]) -> None:
        """Free the slots of what was written; called on the outcomes' threads."""
        for report, verdict in written:
            if isinstance(report, Refusal):
                self._claims.forget(report.id)
            elif report.state is TaskState.QUEUED and report.after_seconds:
                self._due_tasks.expect(report.after_seconds)
            elif report.state is TaskState.QUEUED:
                self._inbox.put(Word.WOKEN)
            tell(report, verdict)
        self._slots.release([report.key for report, _ in written])
        self._inbox.put(Word.SLOT_FREED)

    def _hear(self, message: Message) -> None:
        match message:
            case Word.WOKEN:
                self._look = True
            case Word.WOKEN_BY_NAME:
                self._look = self._woken_by_name = True
            case Word.SLOT_FREED:
                self._look = self._look or self._claims.is_full
            case Word.SIGNAL:
                self._stop()
            case Word.CONDEMNED:
                if not self._condemned:
                    log.error("dispatcher.condemned busy=%d", self._slots.busy)
                self._condemned = True
                self._slots.cancel_all()
                self._outcomes.give_up.set()
                self._drain.end_whole(self._clock())
            case Claim():
                self._unsure.append(message)
            case ThreadEnded(name, why):
                log.error("thread.ended thread=%s why=%s", name, why)
                self._lost = True
                self._drain.end_within(0, self._clock())

    def _stop(self) -> None:
        now = self._clock()
        # Counted from the signal itself: it may have come in the midst of a call that was not answered.
        asked_at = now if self._inbox.signaled_at is None else self._inbox.signaled_at
        if self._drain.ask(now, asked_at):
            self._outcomes.drop_refusals.set()
            log.info("dispatcher.draining busy=%d", self._slots.busy)

    def _act(self) -> None:
        now = self._clock()
        if self._condemned or now < self._next_try:
            return
        asked = False
        if self._claims.unsettled is not None:
            self._claim()
            asked = True
        while self._unsure:
            self._ask_again(self._unsure[-1])
            self._unsure.pop()
            asked = True
        if now >= self._next_sweep:
            self._next_sweep = now + self._times.sweep.total_seconds()
            self._sweep()
            asked = True
        if now >= self._due_tasks.next_at and not self.is_stopping():
            self._look |= self._due_tasks.release()
            asked = True
        while self._look and not self.is_stopping() and self._slots.free > 0:
            self._claim()
            asked = True
        if self._woken_by_name:
            if self._slots.free == 0 or self.is_stopping():
                # Nobody else was woken for what it may have left.
                self._claims.pass_on_wake()
                asked = True
            self._woken_by_name = False
        if asked:
            self._recovered()

    def _claim(self) -> None:
        most = max(self._slots.half, FEWEST_AT_ONCE)
        for taken in self._claims.take(min(self._slots.free, most)):
            self._turn()
            if isinstance(taken, Refusal):
                self._slots.hold(taken.id)
                detail = storable_text(taken.detail, self._limits.max_detail_bytes)
                self._outcomes.put(replace(taken, detail=detail))
            else:
                self._slots.start(taken)
        self._look = self._claims.look_again
        if self._gave_up:
            # Settled too late to be begun.
            self._give_up()

    def _sweep(self) -> None:
        self._look = True
        self._claims.cursor.sweep()
        if self._claims.unsettled is None:
            self._lost_tasks.fail()

    def _ask_again(self, claim: Claim) -> None:
        """A claim waited too long to be begun unasked: its dispatcher may have been condemned meanwhile."""
        renewed = self._claims.renewed(claim)
        if renewed is not None:
            self._slots.resume(renewed)
        else:
            log.warning("claim.late task=%d attempt=%d", claim.id, claim.attempt)
            self._slots.release([claim.key])
            self._look = True

    def _end(self) -> int | None:
        """Return the exit status once it is time to end; on the way there, give up what must be."""
        now = self._clock()
        for name in self._stalled():
            log.error("thread.stalled thread=%s", name)
            self._lost = True
            self._drain.end_within(0, now)
        if now >= self._drain.end_at:
            return 1
        if self._drain.has_begun and self._slots.busy == len(self._left) and self._claims.unsettled is None:
            if self._left:
                return 1
            # Asked even where it is said to be stopped: perhaps it has left, and the reply to that was lost.
            return self._leave()
        if self._condemned:
            # A claim that is to be asked about will never begin.
            return 1 if self._slots.running() <= len(self._unsure) else None
        if now >= self._drain.give_up_at:
            self._give_up()
        return None

    def _give_up(self) -> None:
        self._drain.give_up_at = NEVER
        self._gave_up = True
        for claim, began, may_run_on in self._slots.give_up():
            self._lost = True
            ending = Ending.STILL_RUNNING if began else Ending.NOT_STARTED
            log.error("task.given_up task=%d attempt=%d ending=%s", claim.id, claim.attempt, ending)
            outcome = self._given_up(claim, ending)
            if may_run_on and outcome.state is TaskState.QUEUED:
                # Nobody can end a thread but by ending the process, nor a child that did not go when it was killed.
                self._left.add(claim.key)
            else:
                self._outcomes.put(outcome)

    def _given_up(self, claim: Claim, ending: Ending) -> Outcome:
        task = self._kinds.get(claim.kind)
        reason, detail = "dispatcher stopped before worker completion", f"its body: {ending}"
        if task is None:
            return failed(claim, reason, detail, self._limits, ending)
        return crashed(claim, task, reason, detail, ending, self._limits)

    def _leave(self) -> int | None:
        if self._clock() < self._next_try:
            return None
        try:
            self._caller.call("leave_dispatcher")
            # Until then it may have been woken for what was submitted.
            with suppress(TallyError):
                self._claims.pass_on_wake()
        except Condemned:
            self._hear(Word.CONDEMNED)
            return 1
        except TasksLeft:
            self._next_sweep = self._clock()
            return None
        except TallyError as error:
            self._back_off(error)
            return None
        return 1 if self._lost else 0

    def _back_off(self, error: TallyError) -> None:
        self._failures += 1
        self._next_try = self._clock() + backoff_seconds(self._failures, self._times.backoff)
        if self.trouble is None or isinstance(error, Misconfigured):
            log.warning("loop.trouble error=%s", error)
        self.trouble = str(error)

    def _recovered(self) -> None:
        """The database has answered everything that was asked."""
        self._failures = 0
        if self.trouble is not None:
            log.info("loop.recovered")
            self.trouble = None

    def _wait_seconds(self) -> float:
        now = self._clock()
        due_at = NEVER if self._drain.has_begun else self._due_tasks.next_at
        next_act = self._next_try if self._next_try > now else min(self._next_sweep, due_at)
        if self._condemned:
            next_act = now + CONDEMNED_WAIT_SECONDS
        return min(next_act, self._drain.give_up_at, self._drain.end_at, now + LONGEST_WAIT_SECONDS) - now
