"""One dispatcher's process: every step that it can take by itself.

Its lanes are its loop, which does one thing at a time (claim, settle, read again, sweep, leave), its body, its
outcomes, and its session, which beats. A call's sending, arrival and reply are one step, since its thread does nothing
else meanwhile; for each call there is also the fault that its client gives up, as if the reply were lost, and leaves a
stray.
"""

from collections.abc import Iterator

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
    RETURNED,
    RUNNING,
    STALE,
    SUCCEEDED,
    UP,
    WAITING,
    Next,
    Process,
    State,
    Step,
    Stray,
    is_current,
    with_process,
)


class Lanes(Guarded):
    """What a process does, on a server."""

    def __init__(self, server: Server, without: frozenset[str]) -> None:
        super().__init__(without)
        self._server = server

    def steps(self, state: State, who: int, process: Process) -> Iterator[Next]:
        """Yield every step of a process that is running."""
        yield from self._loop(state, who, process)
        yield from self._body(state, who, process)
        yield from self._outcomes(state, who, process)
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
                yield Step("sweeps", who), changed(state, who, process._replace(swept=True))
        if process.body in {OLD, STALE}:
            yield from self._read_again(state, who, process)

    def _claim(self, state: State, who: int, process: Process) -> Iterator[Next]:
        if process.phase != UP:
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
        process = state.processes[who]
        if process.phase == GAVE_UP:
            age = ABANDONED
        if process.body in {NOTHING, *WAITING} or not self.has("slots once"):
            process = process._replace(body=age)
        return changed(state, who, process)

    def _lose(self, state: State, who: int, process: Process) -> Iterator[Next]:
        idle = process._replace(swept=False)
        if process.body != NOTHING and self.has("sweep held"):
            yield Step("holds it", who), changed(state, who, idle)
            return
        answer, after = self._server.lose(state, who)
        yield Step("lose", who, "", answer), changed(after, who, idle)
        if state.faults:
            yield Step("gives up", who, "lose"), strayed(changed(state, who, idle), Stray("lose", who))

    def _read_again(self, state: State, who: int, process: Process) -> Iterator[Next]:
        if state.rows[who].life != LIVING:
            yield Step("read again", who, "", "stopped"), self._heard(state, who, "stopped")
        elif is_current(state, who):
            yield Step("read again", who, "", "current"), changed(state, who, process._replace(body=FRESH))
        else:
            yield Step("read again", who, "", "not current"), changed(state, who, process._replace(body=NOTHING))

    def _leave(self, state: State, who: int, process: Process) -> Iterator[Next]:
        if process.phase not in {DRAINING, GAVE_UP}:
            return
        if (process.body != NOTHING and self.has("drain waits")) or (process.unsettled and self.has("drain settles")):
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

    def _body(self, state: State, who: int, process: Process) -> Iterator[Next]:
        silent = process.condemned and self.has("condemned is silent")
        may_begin = process.body == FRESH or (process.body in WAITING and not self.has("begin fresh"))
        if may_begin and process.phase != GAVE_UP and not silent:
            begun = changed(state, who, process._replace(body=BEGUN))
            yield Step("body begins", who, process.body), begun._replace(starts=state.starts + 1)
        if process.body == BEGUN:
            yield Step("body ends", who), changed(state, who, process._replace(body=RETURNED))
        if process.body in {FRESH, OLD}:
            age = OLD if is_current(state, who) else STALE
            if age != process.body:
                yield Step("half a grace passes", who), changed(state, who, process._replace(body=age))

    def _outcomes(self, state: State, who: int, process: Process) -> Iterator[Next]:
        if process.body not in ENDED or (process.condemned and self.has("condemned is silent")):
            return
        outcome = SUCCEEDED if process.body == RETURNED else FAILED
        answer, after = self._server.finish(state, who, outcome)
        if answer != "locked":
            yield Step("finish", who, outcome, answer), changed(after, who, process._replace(body=NOTHING))
        if state.faults:
            yield Step("gives up", who, "finish"), strayed(state, Stray("finish", who, outcome))

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
            if process.body != BEGUN:
                yield Step("exits", who), gone(state, who)
        elif process.phase == DRAINING and self._is_free(state, who, process):
            body = ABANDONED if process.body in {BEGUN, *WAITING} else process.body
            yield Step("drain deadline", who), changed(state, who, process._replace(phase=GAVE_UP, body=body))
        elif process.phase == GAVE_UP:
            yield Step("exits", who), gone(state, who)


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
