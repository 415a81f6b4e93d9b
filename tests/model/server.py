"""The SQL functions, on states: what each answers, and what it leaves. Each is one moment, but for the claim.

A claim has two: `claim`, which takes the task's row and keeps it, and `commit`. Who `waits` is for the caller to ask.
"""

from typing import Final

from tests.model.guards import Guarded
from tests.model.states import (
    ABSENT,
    CANCELED,
    CONDEMNED,
    FAILED,
    LEFT,
    LIVING,
    NOTHING,
    QUEUED,
    RUNNING,
    Open,
    Row,
    State,
    Task,
    with_process,
    with_row,
)

Answered = tuple[str, State]

FOR_UPDATE: Final = frozenset({"settle", "leave", "condemn"})


class Server(Guarded):
    """The database's side of the protocol."""

    def waits(self, state: State, who: int, call: str) -> bool:
        """Does this call want the row of a dispatcher for update, while a claim of that dispatcher holds it?"""
        held = state.open is not None and state.open.who == who and self.has("claim lock")
        return held and call in FOR_UPDATE and self.has(f"{call} lock")

    def is_held(self, state: State) -> bool:
        """Does a claim hold the task's row, so that a cancel waits?"""
        return state.open is not None

    def claim(self, state: State, who: int, number: int) -> Answered:
        row = state.rows[who]
        if row.life != LIVING and self.has("claim stopped"):
            return "stopped", state
        if number <= row.fence and self.has("claim fence"):
            return "fenced", state
        if state.open is not None or (state.task.state != QUEUED and self.has("claim queued")):
            return "nothing", state
        return "taken", state._replace(open=Open(who, number, NOTHING))

    def commit(self, state: State) -> State:
        """Commit the open claim."""
        assert state.open is not None
        task = state.task._replace(state=RUNNING, holder=state.open.who, number=state.open.number)
        return state._replace(task=task, open=None)

    def settle(self, state: State, who: int, number: int) -> Answered:
        row, task = state.rows[who], state.task
        if row.life != LIVING:
            return "stopped", state
        if self.has("settle fence"):
            fence = max(row.fence, number) if self.has("fence never sinks") else number
            state = state._replace(rows=with_row(state.rows, who, row._replace(fence=fence)))
        mine = task.state == RUNNING and task.holder == who
        taken = mine and (task.number == number or not self.has("settle number"))
        return "taken" if taken else "nothing", state

    def finish(self, state: State, who: int, outcome: str) -> Answered:
        task = state.task
        if state.open is not None:
            return "locked", state
        mine = task.holder == who or not self.has("finish holder")
        if mine and (task.state == RUNNING or not self.has("finish running")):
            return "written", state._replace(task=ended(task, outcome))
        already = mine and task.state == (CANCELED if task.cancel else outcome)
        return "yours already" if already else "late", state

    def lose(self, state: State, who: int) -> Answered:
        task = state.task
        mine = task.holder == who or not self.has("lose holder")
        if state.open is None and mine and (task.state == RUNNING or not self.has("lose running")):
            return "lost", state._replace(task=ended(task, FAILED))
        return "nothing", state

    def cancel(self, state: State) -> Answered:
        """Cancel the task; the caller sees to it that no claim holds its row."""
        task = state.task
        if task.state == RUNNING:
            return "accepted", state._replace(task=task._replace(cancel=True))
        if task.state == QUEUED or not self.has("cancel open"):
            return "canceled", state._replace(task=task._replace(state=CANCELED))
        return "already terminal", state

    def condemn(self, state: State, suspect: int, moved: bool) -> Answered:
        row = state.rows[suspect]
        if row.life == ABSENT:
            return "unknown", state
        if row.life != LIVING:
            return "stopped already", self.recover(state, suspect)[1]
        if moved and self.has("condemn beat"):
            return "moved", state
        state = state._replace(rows=with_row(state.rows, suspect, row._replace(life=CONDEMNED)))
        return "condemned", self.recover(state, suspect)[1]

    def recover(self, state: State, holder: int) -> Answered:
        task = state.task
        if state.rows[holder].life == LIVING and self.has("recover stopped"):
            return "nothing", state
        if task.state == RUNNING and task.holder == holder and state.open is None:
            return "recovered", state._replace(task=ended(task, FAILED))
        return "nothing", state

    def leave(self, state: State, who: int) -> Answered:
        row, task = state.rows[who], state.task
        if row.life == LEFT:
            return "left", state
        if row.life != LIVING:
            return "stopped", state
        if task.state == RUNNING and task.holder == who and self.has("leave count"):
            return "tasks left", state
        return "left", state._replace(rows=with_row(state.rows, who, row._replace(life=LEFT)))

    def beat(self, state: State, who: int) -> Answered:
        """Beat; whoever watched the beat before will find it moved."""
        if state.rows[who].life != LIVING:
            return "stopped", state
        for judge, process in enumerate(state.processes):
            if process.suspect == who:
                state = state._replace(processes=with_process(state, judge, process._replace(moved=True)))
        strays = [
            stray._replace(moved=True) if stray.call == "condemn" and stray.who == who else stray
            for stray in state.strays
        ]
        return "beat", state._replace(strays=tuple(sorted(strays)))

    def register(self, state: State, who: int) -> State:
        return state._replace(rows=with_row(state.rows, who, Row(LIVING)))


class Impatient(Server):
    """A server whose calls do not wait: what only this one allows is what waits on a real one."""

    def waits(self, state: State, who: int, call: str) -> bool:  # noqa: ARG002 - the same question
        return False

    def is_held(self, state: State) -> bool:  # noqa: ARG002
        return False


def ended(task: Task, outcome: str) -> Task:
    """Return the task as a write ends it; an accepted cancel wins."""
    return task._replace(state=CANCELED if task.cancel else outcome)
