"""Which states are alike: whatever can follow from one can follow from the other, so that one of them is searched.

Nothing here rests on a guard, or it would hide what happens without it; but for two: a claim takes QUEUED tasks only,
and there is another attempt only while one is left.
"""

from typing import Final

from tests.model.promises import TERMINAL
from tests.model.states import (
    GONE,
    LEFT,
    LIVING,
    NOBODY,
    RUNNING,
    UNBORN,
    WAITING,
    Row,
    Standby,
    State,
    Task,
    with_process,
    with_row,
)

PAST: Final = Row(LEFT)
NUMBERED: Final = frozenset({"claim", "settle"})
OUTCOMES: Final = frozenset({"finish", "retry"})


def is_over(state: State) -> bool:
    """Has the task ended, and can nobody do anything about it any more?"""
    return (
        state.task.state in TERMINAL
        and state.open is None
        and not state.strays
        and state.standby is None
        and not state.failovers
        and not any(process.held or process.swept or process.refused != NOBODY for process in state.processes)
    )


def canonical(state: State) -> State:
    """Return the one state that stands for all that are like this one."""
    if _is_claimed_for_good(state) and any(stray.call == "claim" for stray in state.strays):
        # It finds nothing, now and for ever.
        state = state._replace(strays=tuple(stray for stray in state.strays if stray.call != "claim"))
    state = _without_past_attempts(state)
    for who, process in enumerate(state.processes):
        if process.phase == UNBORN:
            break
        if process.phase == GONE:
            state = _past(state, who)
        state = _number_anew(state, who)
    return state


def _is_claimed_for_good(state: State) -> bool:
    task = state.task
    return task.state in TERMINAL or (task.state == RUNNING and task.attempt >= state.options.max_attempts)


def _without_past_attempts(state: State) -> State:
    """Forget how often a body may begin that nobody can begin any more, and who told what nobody tells again."""
    task, standby = state.task, state.standby
    held = [(who, *claim) for who, process in enumerate(state.processes) for claim in process.held]
    if task.told or (standby is not None and standby.task.told):
        asked = {(attempt, who) for who, attempt, _ in held}
        asked |= {(stray.attempt, stray.who) for stray in state.strays if stray.call in OUTCOMES}
        state = state._replace(task=_forgotten(task, asked))
        if standby is not None:
            state = state._replace(standby=standby._replace(task=_forgotten(standby.task, asked)))
    if standby is None and not state.failovers:
        # What may still be claimed, and what is held and has not begun.
        first = len(state.begins) if task.state in TERMINAL else task.attempt - (task.state == RUNNING)
        waiting = {attempt - 1 for _, attempt, body in held if body in WAITING}
        if any(state.begins[place] and place not in waiting for place in range(first)):
            begins = [left if place >= first or place in waiting else 0 for place, left in enumerate(state.begins)]
            state = state._replace(begins=tuple(begins))
    return state


def _forgotten(task: Task, asked: set[tuple[int, int]]) -> Task:
    """Return the task without the tellers of outcomes that nobody can tell again."""
    told = tuple(who if (attempt, who) in asked else NOBODY for attempt, who in enumerate(task.told, 1))
    return task if told == task.told else task._replace(told=told)


def _past(state: State, who: int) -> State:
    """Forget how a dispatcher was stopped whose process is gone, once nothing is left that names it."""
    if (
        (state.open is not None and state.open.who == who)
        or any(stray.who == who for stray in state.strays)
        or any(process.suspect == who for process in state.processes)
    ):
        return state
    if _is_past(state.rows[who], state.task, who):
        state = state._replace(rows=with_row(state.rows, who, PAST))
    standby = state.standby
    if standby is not None and _is_past(standby.rows[who], standby.task, who):
        state = state._replace(standby=standby._replace(rows=with_row(standby.rows, who, PAST)))
    return state


def _is_past(row: Row, task: Task, who: int) -> bool:
    return row.life != LIVING and row != PAST and not (task.state == RUNNING and task.holder == who)


def _number_anew(state: State, who: int) -> State:
    """Number the claims that are still asked about, or under way, from 1; what is of none of them has the number 0."""
    process, row, task, standby = state.processes[who], state.rows[who], state.task, state.standby
    strays = [int(stray.detail) for stray in state.strays if stray.who == who and stray.call in NUMBERED]
    mine = task.holder == who
    begun = state.open is not None and state.open.who == who
    if not (process.number or row.fence or (mine and task.number) or begun or strays):
        return state
    under_way = {*strays}
    if process.unsettled:
        under_way.add(process.number)
    if begun and state.open is not None:
        under_way.add(state.open.number)
    anew = {number: place for place, number in enumerate(sorted(under_way), 1)}
    # A fence matters to claims that have not arrived yet; any later claim is above it, and above all others.
    fence = max((place for number, place in anew.items() if number <= row.fence), default=0) if strays else 0
    last = anew[process.number] if process.unsettled else 0 if process.phase == GONE else len(anew)
    if standby is not None:
        rows = with_row(standby.rows, who, standby.rows[who]._replace(fence=0))
        standby = Standby(_renumbered(standby.task, anew) if standby.task.holder == who else standby.task, rows)
    return state._replace(
        task=_renumbered(task, anew) if mine else task,
        rows=with_row(state.rows, who, Row(row.life, fence)),
        processes=with_process(state, who, process._replace(number=last)),
        open=state.open._replace(number=anew[state.open.number]) if begun and state.open is not None else state.open,
        strays=tuple(
            stray._replace(detail=anew[int(stray.detail)]) if stray.who == who and stray.call in NUMBERED else stray
            for stray in state.strays
        )
        if strays
        else state.strays,
        standby=standby,
    )


def _renumbered(task: Task, anew: dict[int, int]) -> Task:
    return task._replace(number=anew.get(task.number, 0))
