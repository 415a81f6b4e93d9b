"""One dispatcher's process: every step that it can take by itself.

Its lanes are its loop, which does one thing at a time (claim, settle, read again, sweep, release, leave), its bodies,
its outcomes, and its session, which beats. A call's sending, arrival and reply are one step, since its thread does
nothing else meanwhile; for each call there is also the fault that its client gives up, as if the reply were lost, and
leaves a stray. The reply to a retry may also come late: from its commit on others may claim the task, this
dispatcher's own loop too.
"""

from collections.abc import Iterator
from typing import Final

from tests.model.guards import Guarded
from tests.model.server import Server
from tests.model.states import (
    ABANDONED,
    BEGUN,
    DRAINING,
    ENDED,
    FAILED,
    FRESH,
    GAVE_UP,
    GONE,
    LIVING,
    NOBODY,
    NOTHING,
    OLD,
    RAISED,
    RETURNED,
    RUNNING,
    STALE,
    SUCCEEDED,
    UP,
    WAITING,
    Held,
    Next,
    Process,
    State,
    Step,
    Stray,
    is_current,
    with_process,
)

UNHEARD: Final = "reply comes late"


class Lanes(Guarded):
    """What a process does, on a server."""

    def __init__(self, server: Server, without: frozenset[str]) -> None:
        super().__init__(without)
        self._server = server

    def steps(self, state: State, who: int, process: Process) -> Iterator[Next]:
        """Yield every step of a process that is running."""
        yield from self._loop(state, who, process)
        for held in process.held:
            yield from self._body(state, who, process, held)
            yield from self._outcome(state, who, process, held)
        if process.refused != NOBODY and not process.condemned:
            yield from self._refuse(state, who, process)
        yield from self._session(state, who, process)
        yield from self._end(state, who, process)

    def _is_free(self, state: State, who: int, process: Process) -> bool:
        """Is the loop not waiting for a reply?"""
        return not process.swept and (state.open is None or state.open.who != who or state.open.awaited == NOTHING)

    def _loop(self, state: State, who: int, process: Process) -> Iterator[Next]:
        if process.swept:
            yield from self._lose(state, who, process)
        if not self._is_free(state, who, process):
            return
        yield from self._leave(state, who, process)
        if process.condemned:
            return
        if process.unsettled:
            yield from self._settle(state, who, process)
        if not process.unsettled or not self.has("one at a time"):
            yield from self._claim(state, who, process)
        if self.has("sweep looks") and (not process.unsettled or not self.has("sweep settled")):
            mine = state.task.holder == who or not self.has("sweep own")
            if state.task.state == RUNNING and mine:
                attempt = state.task.attempt
                yield Step("sweeps", who, attempt=attempt), changed(state, who, process._replace(swept=attempt))
        if state.task.due and process.phase == UP and self.has("loop releases"):
            answer, after = self._server.release(state)
            yield Step("release", who, "", answer), after
        for held in process.held:
            if held.body in {OLD, STALE}:
                yield from self._read_again(state, who, process, held)

    def _claim(self, state: State, who: int, process: Process) -> Iterator[Next]:
        if process.phase != UP or process.refused != NOBODY:
            return
        number = process.number + 1
        asked = changed(state, who, process._replace(number=number))
        answer, after = self._server.claim(asked, who, number)
        if after.open is not None and answer == "taken":
            after = after._replace(open=after.open._replace(awaited=FRESH))
        yield Step("claim", who, number, answer), self._heard(after, who, answer)
        if state.faults:
            given_up = process._replace(number=number, unsettled=True)
            yield Step("gives up", who, "claim"), strayed(changed(state, who, given_up), Stray("claim", who, number))
        if state.faults and answer == "taken" and state.options.max_attempts > 1:
            # Where there is one attempt only, a task that is still QUEUED was never claimed.
            attempt = state.task.attempt
            yield Step("is refused", who), changed(faulted(state), who, process._replace(refused=attempt))

    def _settle(self, state: State, who: int, process: Process) -> Iterator[Next]:
        number = process.number
        if not self._server.waits(state, who, "settle"):
            answer, after = self._server.settle(state, who, number)
            after = changed(after, who, process._replace(unsettled=False))
            if answer == "taken":
                after = self.received(after, who, FRESH)
            yield Step("settle", who, number, answer), self._heard(after, who, answer)
        if state.faults:
            yield Step("gives up", who, "settle"), strayed(state, Stray("settle", who, number))

    def received(self, state: State, who: int, age: str) -> State:
        """A claim's row was returned: it is held from now on, and begun, once."""
        process, attempt = state.processes[who], state.task.attempt
        if process.phase == GAVE_UP:
            age = given_up(state, attempt)
        for held in process.held:
            same = held.attempt == attempt or not self.has("slots by attempt")
            if same and held.body not in WAITING and self.has("slots once"):
                return state
        return changed(state, who, without(process, attempt, Held(attempt, age)))

    def _lose(self, state: State, who: int, process: Process) -> Iterator[Next]:
        attempt, idle = process.swept, process._replace(swept=0)
        if process.held and self.has("sweep held"):
            # Of whichever attempt: it is looked at again once that one has ended.
            yield Step("holds it", who, attempt=attempt), changed(state, who, idle)
            return
        answer, after = self._server.lose(state, who, attempt)
        yield Step("lose", who, "", answer, attempt=attempt), changed(after, who, idle)
        if state.faults:
            stray = Stray("lose", who, attempt=attempt)
            yield Step("gives up", who, "lose", attempt=attempt), strayed(changed(state, who, idle), stray)

    def _read_again(self, state: State, who: int, process: Process, held: Held) -> Iterator[Next]:
        attempt = held.attempt
        if state.rows[who].life != LIVING:
            yield Step("read again", who, "", "stopped", attempt=attempt), self._heard(state, who, "stopped")
        elif is_current(state, who, attempt):
            fresh = without(process, attempt, Held(attempt, FRESH))
            yield Step("read again", who, "", "current", attempt=attempt), changed(state, who, fresh)
        else:
            dropped = changed(state, who, without(process, attempt))
            yield Step("read again", who, "", "not current", attempt=attempt), dropped

    def _leave(self, state: State, who: int, process: Process) -> Iterator[Next]:
        if process.phase not in {DRAINING, GAVE_UP}:
            return
        busy = process.held or process.refused != NOBODY
        if (busy and self.has("drain waits")) or (process.unsettled and self.has("drain settles")):
            return
        if not self._server.waits(state, who, "leave"):
            answer, after = self._server.leave(state, who)
            after = gone(after, who) if answer == "left" else self._heard(after, who, answer)
            yield Step("leave", who, "", answer), after
        if state.faults:
            yield Step("gives up", who, "leave"), strayed(state, Stray("leave", who))

    def _heard(self, state: State, who: int, answer: str) -> State:
        """A call was refused to this dispatcher because it is stopped: now it knows."""
        if answer != "stopped":
            return state
        return changed(state, who, state.processes[who]._replace(condemned=True, suspect=NOBODY, moved=False))

    def _body(self, state: State, who: int, process: Process, held: Held) -> Iterator[Next]:
        attempt, body = held
        silent = process.condemned and self.has("condemned is silent")
        may_begin = body == FRESH or (body in WAITING and not self.has("begin fresh"))
        if may_begin and process.phase != GAVE_UP and not silent:
            begins = [left - (number == attempt) for number, left in enumerate(state.begins, 1)]
            begun = changed(state, who, without(process, attempt, Held(attempt, BEGUN)))
            yield Step("body begins", who, body, attempt=attempt), begun._replace(begins=tuple(begins))
        if body == BEGUN and process.phase != GAVE_UP:
            returned = without(process, attempt, Held(attempt, RETURNED))
            yield Step("body returns", who, attempt=attempt), changed(state, who, returned)
            if state.options.max_attempts > 1:
                raised = without(process, attempt, Held(attempt, RAISED))
                yield Step("body raises", who, attempt=attempt), changed(state, who, raised)
        if body in {FRESH, OLD}:
            age = OLD if is_current(state, who, attempt) else STALE
            if age != body:
                aged = without(process, attempt, Held(attempt, age))
                yield Step("half a grace passes", who, attempt=attempt), changed(state, who, aged)

    def _outcome(self, state: State, who: int, process: Process, held: Held) -> Iterator[Next]:
        attempt, body = held
        if body not in ENDED or (process.condemned and self.has("condemned is silent")):
            return
        if body == RAISED:
            call, outcome = "retry", ""
            answer, after = self._server.retry(state, who, attempt)
        else:
            call, outcome = "finish", SUCCEEDED if body == RETURNED else FAILED
            answer, after = self._server.finish(state, who, attempt, outcome)
        if answer != "locked":
            freed = process._replace(held=()) if not self.has("slots by attempt") else without(process, attempt)
            yield Step(call, who, outcome, answer, attempt=attempt), changed(after, who, freed)
        if call == "retry" and answer == "written":
            yield Step(call, who, UNHEARD, answer, attempt=attempt), after
        if state.faults:
            stray = Stray(call, who, outcome, attempt=attempt)
            yield Step("gives up", who, call, attempt=attempt), strayed(state, stray)

    def _refuse(self, state: State, who: int, process: Process) -> Iterator[Next]:
        attempt, done = process.refused, process._replace(refused=NOBODY)
        if not self._server.is_held(state):
            answer, after = self._server.refuse(state, who, attempt)
            yield Step("refuse", who, "", answer, attempt=attempt), changed(after, who, done)
        if process.phase != UP:
            yield Step("drops the refusal", who), changed(state, who, done)
        if state.faults:
            stray = Stray("refuse", who, attempt=attempt)
            yield Step("gives up", who, "refuse", attempt=attempt), strayed(state, stray)

    def _session(self, state: State, who: int, process: Process) -> Iterator[Next]:
        if process.condemned:
            return
        answer, after = self._server.beat(state, who)
        if after != state or answer != "beat":
            yield Step("beat", who, "", answer), self._heard(after, who, answer)

    def _end(self, state: State, who: int, process: Process) -> Iterator[Next]:
        if state.faults:
            yield Step("is killed", who), gone(faulted(state), who)
            if process.phase == UP:
                yield Step("is signaled", who), changed(faulted(state), who, process._replace(phase=DRAINING))
        if process.condemned:
            # Told to end, a body that waits does not begin.
            if process.phase == GAVE_UP or all(held.body != BEGUN for held in process.held):
                yield Step("exits", who), gone(state, who)
        elif process.phase == DRAINING and self._is_free(state, who, process):
            yield from self._give_up(state, who, process)
        elif process.phase == GAVE_UP:
            yield Step("exits", who), gone(state, who)

    def _give_up(self, state: State, who: int, process: Process) -> Iterator[Next]:
        """A body in a process of its own is killed. One in a thread goes on, and its row is left to a judge."""
        killed = tuple(
            Held(held.attempt, given_up(state, held.attempt)) if held.body in {BEGUN, *WAITING} else held
            for held in process.held
        )
        left = tuple(
            held if held.body == BEGUN and instead.body == RAISED else instead
            for held, instead in zip(process.held, killed, strict=True)
        )
        yield Step("drain deadline", who), changed(state, who, process._replace(phase=GAVE_UP, held=killed))
        if left != killed:
            yield Step("drain deadline", who, "left"), changed(state, who, process._replace(phase=GAVE_UP, held=left))


def given_up(state: State, attempt: int) -> str:
    """Return what a body comes to that has not ended by the drain deadline."""
    options = state.options
    return RAISED if options.retried_after_crash and attempt < options.max_attempts else ABANDONED


def without(process: Process, attempt: int, instead: Held | None = None) -> Process:
    """Return a process that does not hold an attempt, or holds it so instead."""
    held = [held for held in process.held if held.attempt != attempt]
    return process._replace(held=tuple(sorted([*held, instead] if instead else held)))


def changed(state: State, who: int, process: Process) -> State:
    return state._replace(processes=with_process(state, who, process))


def faulted(state: State) -> State:
    return state._replace(faults=state.faults - 1)


def strayed(state: State, stray: Stray) -> State:
    return faulted(state)._replace(strays=tuple(sorted((*state.strays, stray))))


def gone(state: State, who: int) -> State:
    """End a process. What it had the server do goes on there."""
    if state.open is not None and state.open.who == who:
        state = state._replace(open=state.open._replace(awaited=NOTHING))
    return changed(state, who, Process(GONE))
