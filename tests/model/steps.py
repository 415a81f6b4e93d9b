"""Every step that is possible in a state, and where it leads: of each process, of the judges, of the world."""

from collections.abc import Iterator
from typing import Final

from tests.model.guards import Guarded
from tests.model.lanes import Lanes, changed, faulted, strayed
from tests.model.server import Server
from tests.model.states import (
    DUE,
    EARLY,
    FRESH,
    GONE,
    LIVING,
    NOBODY,
    NOTHING,
    OLD,
    ONCE,
    RUNNING,
    UNBORN,
    UP,
    Next,
    Options,
    Process,
    Row,
    Standby,
    State,
    Step,
    Stray,
    Task,
)

UNFAIR: Final = frozenset(
    {
        "gives up",
        "is killed",
        "is signaled",
        "is refused",
        "suspects",
        "server restarts",
        "standby stops",
        "failover",
        "cancel",
    }
)
"""What need not happen: faults, and what clients and operators do. The rest happens, if it goes on being possible."""


class Dispatchers(Guarded):
    """Every step; at most `at_once` processes run at a time."""

    def __init__(self, at_once: int, without: frozenset[str] = frozenset(), server: Server | None = None) -> None:
        super().__init__(without)
        self._at_once = at_once
        self._server = server or Server(without)
        self._lanes = Lanes(self._server, without)

    def first(self, *, faults: int, cancels: int = 1, failovers: int = 0, options: Options = ONCE) -> State:
        """Return the state before anything was started: the task is QUEUED."""
        # A process ends by a fault, or because a failover has lost its row.
        ids = faults + self._at_once * (1 + failovers)
        return State(
            Task(),
            (Row(),) * ids,
            (Process(),) * ids,
            faults=faults,
            cancels=cancels,
            failovers=failovers,
            begins=(1,) * options.max_attempts,
            options=options,
        )

    def steps(self, state: State) -> Iterator[Next]:
        """Yield every step out of a state; some may lead nowhere new."""
        yield from self._start(state)
        for who, process in enumerate(state.processes):
            if process.phase not in {UNBORN, GONE}:
                yield from self._lanes.steps(state, who, process)
        yield from self._judge(state)
        yield from self._open(state)
        yield from self._strays(state)
        yield from self._world(state)

    def _start(self, state: State) -> Iterator[Next]:
        running = sum(process.phase not in {UNBORN, GONE} for process in state.processes)
        born = sum(process.phase != UNBORN for process in state.processes)
        if running < self._at_once:
            yield Step("starts", born), changed(self._server.register(state, born), born, Process(UP))

    def _judge(self, state: State) -> Iterator[Next]:
        judges = [
            who
            for who, process in enumerate(state.processes)
            if process.phase not in {UNBORN, GONE} and not process.condemned
        ]
        # Which of them proves a death, and recovers, makes no difference.
        for judge in judges[:1] if self.has("judge looks") else []:
            for suspect, process in enumerate(state.processes):
                if process.phase == GONE and state.rows[suspect].life == LIVING:
                    yield from self._condemn(state, judge, suspect, moved=False)
            holder = state.task.holder
            stopped = state.rows[holder].life != LIVING or not self.has("judge stopped")
            if state.task.state == RUNNING and stopped:
                answer, after = self._server.recover(state, holder)
                yield Step("recover", judge, holder, answer), after
        for judge in judges:
            process = state.processes[judge]
            if process.suspect != NOBODY:
                done = changed(state, judge, process._replace(suspect=NOBODY, moved=False))
                yield from self._condemn(done, judge, process.suspect, moved=process.moved)
            elif state.faults:
                for suspect, other in enumerate(state.processes):
                    if suspect != judge and other.phase not in {UNBORN, GONE} and state.rows[suspect].life == LIVING:
                        watched = process._replace(suspect=suspect)
                        yield Step("suspects", judge, suspect), changed(faulted(state), judge, watched)

    def _condemn(self, state: State, judge: int, suspect: int, *, moved: bool) -> Iterator[Next]:
        if not self._server.waits(state, suspect, "condemn"):
            answer, after = self._server.condemn(state, suspect, moved)
            yield Step("condemn", judge, suspect, answer, moved=moved), after
        if state.faults:
            yield Step("gives up", judge, "condemn"), strayed(state, Stray("condemn", suspect, 0, moved))

    def _open(self, state: State) -> Iterator[Next]:
        claim = state.open
        if claim is None:
            return
        committed = self._server.commit(state)
        if claim.awaited == NOTHING:
            yield Step("commit", claim.who, claim.number, late=True), committed
            yield Step("rollback", claim.who, claim.number, late=True), state._replace(open=None)
            return
        yield Step("commit", claim.who, claim.number), self._lanes.received(committed, claim.who, claim.awaited)
        if claim.awaited == FRESH:
            aged = claim._replace(awaited=OLD)
            yield Step("half a grace passes", claim.who), state._replace(open=aged)
        if state.faults:
            yield Step("gives up", claim.who, "commit"), _unanswered(faulted(state))

    def _strays(self, state: State) -> Iterator[Next]:
        for place, stray in enumerate(state.strays):
            if place and state.strays[place - 1] == stray:
                continue
            rest = state._replace(strays=(*state.strays[:place], *state.strays[place + 1 :]))
            yield Step("never arrives", stray.who, stray.call, late=True), rest
            yield from self._arrive(rest, stray)

    def _arrive(self, state: State, stray: Stray) -> Iterator[Next]:
        server, (call, who, detail, moved, attempt) = self._server, stray
        if server.waits(state, who, call) or (call == "refuse" and server.is_held(state)):
            return
        match call:
            case "claim":
                answer, after = server.claim(state, who, int(detail))
            case "settle":
                answer, after = server.settle(state, who, int(detail))
            case "finish":
                answer, after = server.finish(state, who, attempt, str(detail))
            case "refuse":
                answer, after = server.refuse(state, who, attempt)
            case "retry":
                answer, after = server.retry(state, who, attempt)
            case "lose":
                answer, after = server.lose(state, who, attempt)
            case "leave":
                answer, after = server.leave(state, who)
            case _:
                answer, after = server.condemn(state, who, moved)
        yield Step(call, who, detail, answer, late=True, moved=moved, attempt=attempt), after

    def _world(self, state: State) -> Iterator[Next]:
        if state.cancels and not self._server.is_held(state):
            answer, after = self._server.cancel(state)
            yield Step("cancel", NOBODY, "", answer), after._replace(cancels=state.cancels - 1)
        if state.task.due == EARLY:
            yield Step("its time comes"), state._replace(task=state.task._replace(due=DUE))
        if state.faults:
            yield Step("server restarts"), _cut_off(faulted(state))
        if state.failovers and state.standby is None:
            yield Step("standby stops"), state._replace(standby=Standby(state.task, state.rows))
        if state.standby is not None:
            yield Step("failover"), _fail_over(state, state.standby)


def _unanswered(state: State) -> State:
    """The reply to the open claim is lost, whatever becomes of it."""
    if state.open is None or state.open.awaited == NOTHING:
        return state
    who = state.open.who
    state = state._replace(open=state.open._replace(awaited=NOTHING))
    return changed(state, who, state.processes[who]._replace(unsettled=True))


def _cut_off(state: State) -> State:
    """Every session ends: what is not committed never will be, and judges begin to watch anew."""
    state = _unanswered(state)
    processes = tuple(
        process if process.phase in {UNBORN, GONE} else process._replace(swept=0, suspect=NOBODY, moved=False)
        for process in state.processes
    )
    return state._replace(processes=processes, open=None, strays=())


def _fail_over(state: State, standby: Standby) -> State:
    """The standby takes over with what it has."""
    lost = range(standby.task.attempt + 1, state.task.attempt + 1)
    return _cut_off(state)._replace(
        task=standby.task,
        rows=standby.rows,
        standby=None,
        failovers=state.failovers - 1,
        begins=tuple(left + (attempt in lost) for attempt, left in enumerate(state.begins, 1)),
        failed_over=True,
    )
