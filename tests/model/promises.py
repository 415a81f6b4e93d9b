"""What no step may break. Nothing here knows of guards: a promise is read off a step and the states around it."""

from tests.model.states import (
    BEGUN,
    CONDEMNED,
    EARLY,
    GONE,
    LEFT,
    LIVING,
    QUEUED,
    RUNNING,
    STALE,
    State,
    Step,
)

TERMINAL = frozenset({"SUCCEEDED", "FAILED", "CANCELED"})
CRASHES = frozenset({"recover", "condemn", "lose"})
"""What is written of an attempt whose body may not have ended."""


def broken(before: State, step: Step, after: State) -> str | None:
    """Return the promise that a step breaks."""
    if step.verb == "body begins":
        return _beginning(before, step, after)
    if step.answer == "condemned" and step.moved:
        suspect = step.who if step.late else int(step.detail)
        if before.processes[suspect].phase != GONE:
            return "a dispatcher is condemned that has beaten since its judge looked"
    was, task = before.task, after.task
    if task is was or step.verb == "failover":
        # A failover brings back what was: nothing is promised of the task's past then, only of its future.
        return None
    if was.state in TERMINAL and task != was._replace(told=task.told):
        return "a terminal task changes"
    if step.verb in {"finish", "retry", "lose"}:
        if step.who != was.holder:
            return "a claim is ended by another dispatcher than its holder"
        if step.attempt != was.attempt:
            return "an attempt is ended by a write that names another"
    if step.verb == "refuse" and step.attempt != was.attempt:
        return "a task is refused that was claimed since"
    if was.state == QUEUED:
        return _leaving_the_queue(before, after)
    if task.state == RUNNING:
        return None if task.attempt == was.attempt else "a task is claimed that is claimed already"
    if step.verb == "lose" and not after.failed_over:
        return "the database lost this task's outcome, without a failover"
    if step.verb in {"recover", "condemn"} and after.rows[was.holder].life == LIVING:
        return "a living dispatcher's task is recovered"
    if task.state == QUEUED:
        return _another_attempt(before, step)
    return None


def _beginning(before: State, step: Step, after: State) -> str | None:
    """Return the promise that a body breaks by beginning."""
    if min(after.begins) < 0:
        return "a body begins twice"
    if step.detail == STALE:
        return "a body begins for a claim that has long ceased to be current"
    if before.rows[step.who].life == CONDEMNED or before.failed_over:
        return None
    for process, row in zip(before.processes, before.rows, strict=True):
        if row.life != CONDEMNED and any(held.body == BEGUN for held in process.held):
            return "two bodies of a task run at once, though neither's dispatcher was condemned"
    return None


def _leaving_the_queue(before: State, after: State) -> str | None:
    was, task = before.task, after.task
    if was.due == EARLY and task.state != "CANCELED" and not task.due:
        return "a task that waits is claimed before its time"
    if task.state == RUNNING and after.rows[task.holder].life != LIVING:
        return "a stopped dispatcher claims a task"
    return None


def _another_attempt(before: State, step: Step) -> str | None:
    was, options = before.task, before.options
    if was.attempt >= options.max_attempts:
        return "there are more attempts than the kind allows"
    if was.cancel:
        return "there is another attempt after an accepted cancel"
    if step.verb in CRASHES and not options.retried_after_crash:
        return "there is another attempt after a crash, against the kind's word"
    return None


def left_behind(state: State) -> str | None:
    """Return the promise that a state breaks, whatever led to it."""
    task = state.task
    if task.state == RUNNING and state.rows[task.holder].life == LEFT:
        return "a dispatcher exits 0 with a claimed task"
    return None
