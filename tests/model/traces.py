"""A trace, in words: a line for each step, and what it changed."""

from collections.abc import Iterator

from tests.model.states import GONE, NOBODY, QUEUED, UNBORN, Next, State, Step, name


def told(trace: list[Next]) -> Iterator[str]:
    """Yield a line for each step."""
    before = ""
    for number, (step, state) in enumerate(trace, 1):
        after = seen(state)
        yield f"{number:3}. {words(step):<52}{'' if after == before else after}"
        before = after


def words(step: Step) -> str:
    late = " late" if step.late else ""
    detail = step.detail
    if step.verb in {"condemn", "suspects", "recover"}:
        detail = name(step.who if step.late else int(detail))
    who = "" if step.who == NOBODY or (step.late and step.verb == "condemn") else f"{name(step.who)}: "
    if step.moved:
        detail = f"{detail}, by an earlier beat"
    if step.attempt > 1 or step.verb == "retry":
        detail = f"{detail}, attempt {step.attempt}" if detail != "" else f"attempt {step.attempt}"
    answer = f" -> {step.answer}" if step.answer else ""
    return f"{who}{step.verb}{late}{f' ({detail})' if detail != '' else ''}{answer}"


def seen(state: State) -> str:
    """Return what can be seen of a state in a line: the task, each dispatcher, what is under way."""
    task = state.task
    parts = [f"task {task.state}" + ("" if task.holder == NOBODY else f" by {name(task.holder)}#{task.number}")]
    if task.attempt > 1 or (task.attempt and task.state == QUEUED):
        parts[0] += f" attempt {task.attempt}"
    if task.due:
        parts[0] += f" {task.due}"
    if task.cancel:
        parts[0] += " cancel accepted"
    for who, (process, row) in enumerate(zip(state.processes, state.rows, strict=True)):
        if process.phase == UNBORN:
            continue
        marks = [row.life, *([f"fence {row.fence}"] if row.fence else [])]
        if process.phase != GONE:
            marks.append(process.phase)
            marks += [held.body if held.attempt == 1 else f"{held.body} {held.attempt}" for held in process.held]
            marks += ["refused"] if process.refused != NOBODY else []
            marks += [word for word in ("condemned", "unsettled", "swept") if getattr(process, word)]
        else:
            marks.append("gone")
        parts.append(f"{name(who)} {', '.join(marks)}")
    if state.open is not None:
        parts.append(f"open claim {name(state.open.who)}#{state.open.number}")
    parts += [f"stray {stray.call} {name(stray.who)} {stray.detail}" for stray in state.strays]
    return " | ".join(parts)
