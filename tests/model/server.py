"""The SQL functions, on states: what each answers, and what it leaves. Each is one moment, but for the claim.

A claim has two: `claim`, which takes the task's row and keeps it, and `commit`. Who `waits` is for the caller to ask.
"""

from typing import Final

from tests.model.guards import Guarded
from tests.model.states import (
    ABSENT,
    CANCELED,
    CONDEMNED,
    DUE,
    EARLY,
    FAILED,
    LEFT,
    LIVING,
    NOBODY,
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
        row, task = state.rows[who], state.task
        if row.life != LIVING and self.has("claim stopped"):
            return "stopped", state
        if number <= row.fence and self.has("claim fence"):
            return "fenced", state
        if state.open is not None or (task.state != QUEUED and self.has("claim queued")):
            return "nothing", state
        if task.due and self.has("claim due"):
            return "nothing", state
        return "taken", state._replace(open=Open(who, number, NOTHING))

    def commit(self, state: State) -> State:
        """Commit the open claim."""
        assert state.open is not None
        task = state.task._replace(
            state=RUNNING, holder=state.open.who, number=state.open.number, attempt=state.task.attempt + 1, due=""
        )
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

    def refuse(self, state: State, who: int, attempt: int) -> Answered:
        """Fail a task whose claim was refused; the caller sees to it that no claim holds its row."""
        task = state.task
        if state.rows[who].life != LIVING:
            return "stopped", state
        claimed = task.attempt != attempt and self.has("refuse attempt")
        if task.state == RUNNING or (task.state == QUEUED and (task.due or claimed)):
            return "claimed after all", state
        if task.state == QUEUED:
            return "refused", state._replace(task=task._replace(state=FAILED))
        return "already terminal", state

    def _is_named(self, write: str, task: Task, who: int, attempt: int) -> bool:
        """Does a write that names this dispatcher and attempt name the task's claim?"""
        holder = task.holder == who or not self.has(f"{write} holder")
        return holder and (task.attempt == attempt or not self.has(f"{write} attempt"))

    def finish(self, state: State, who: int, attempt: int, outcome: str) -> Answered:
        task = state.task
        if state.open is not None:
            return "locked", state
        mine = self._is_named("finish", task, who, attempt)
        if mine and (task.state == RUNNING or not self.has("finish running")):
            return "written", state._replace(task=ended(task, outcome, who))
        return refused(task, who, attempt), state

    def retry(self, state: State, who: int, attempt: int) -> Answered:
        """Ask for another attempt, which waits for its time."""
        task = state.task
        if state.open is not None:
            return "locked", state
        mine = self._is_named("retry", task, who, attempt)
        if mine and (task.state == RUNNING or not self.has("retry running")):
            return "written", state._replace(task=self._again(state, who))
        return refused(task, who, attempt), state

    def lose(self, state: State, who: int, attempt: int) -> Answered:
        task = state.task
        mine = self._is_named("lose", task, who, attempt)
        if state.open is None and mine and (task.state == RUNNING or not self.has("lose running")):
            return "lost", state._replace(task=self._again(state, NOBODY))
        return "nothing", state

    def _again(self, state: State, teller: int) -> Task:
        """Return the task after an attempt that may be followed by another; nobody's outcome ends one that crashed."""
        task, options = state.task, state.options
        left = task.attempt < options.max_attempts or not self.has("again left")
        wanted = teller != NOBODY or options.retried_after_crash or not self.has("again crashed")
        if left and wanted and not (task.cancel and self.has("again cancel")):
            return Task(attempt=task.attempt, due=EARLY, told=(*task.told[: task.attempt - 1], teller))
        return ended(task, FAILED, teller)

    def release(self, state: State) -> Answered:
        """Let the task be claimed, if it has waited for its time."""
        task = state.task
        if task.due == DUE or (task.due and not self.has("release due")):
            return "released", state._replace(task=task._replace(due=""))
        return "nothing", state

    def cancel(self, state: State) -> Answered:
        """Cancel the task; the caller sees to it that no claim holds its row."""
        task = state.task
        if task.state == RUNNING:
            return "accepted", state._replace(task=task._replace(cancel=True))
        if task.state == QUEUED or not self.has("cancel open"):
            return "canceled", state._replace(task=task._replace(state=CANCELED, due=""))
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
            return "recovered", state._replace(task=self._again(state, NOBODY))
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


def ended(task: Task, outcome: str, teller: int) -> Task:
    """Return the task as a write ends it; an accepted cancel wins."""
    state = CANCELED if task.cancel else outcome
    return task._replace(state=state, told=(*task.told[: task.attempt - 1], teller))


def refused(task: Task, who: int, attempt: int) -> str:
    """Return the verdict on an outcome that changes nothing."""
    return "yours already" if task.told[attempt - 1 : attempt] == (who,) else "late"
