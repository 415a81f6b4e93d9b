"""What no step may break. Nothing here knows of guards: a promise is read off a step and the states around it."""

from tests.model.states import GONE, LEFT, LIVING, QUEUED, RUNNING, STALE, State, Step

TERMINAL = frozenset({"SUCCEEDED", "FAILED", "CANCELED"})


def broken(before: State, step: Step, after: State) -> str | None:
    """Return the promise that a step breaks."""
    if step.verb == "body begins":
        if after.starts > 1 + after.lost:
            return "a body begins twice"
        if step.detail == STALE:
            return "a body begins for a claim that has long ceased to be current"
    if step.answer == "condemned" and step.moved:
        suspect = step.who if step.late else int(step.detail)
        if before.processes[suspect].phase != GONE:
            return "a dispatcher is condemned that has beaten since its judge looked"
    was, task = before.task, after.task
    if task is was or step.verb == "failover":
        # A failover brings back what was: nothing is promised of the task's past then, only of its future.
        return None
    if was.state in TERMINAL and task != was:
        return "a terminal task changes"
    if task.state == RUNNING:
        row = after.rows[task.holder]
        if was.state == QUEUED and row.life != LIVING:
            return "a stopped dispatcher claims a task"
        return None
    if step.verb in {"finish", "lose"} and step.who != was.holder:
        return "a claim is ended by another dispatcher than its holder"
    if step.verb == "lose" and not after.failed_over:
        return "the database lost this task's outcome, without a failover"
    if step.verb in {"recover", "condemn"} and after.rows[was.holder].life == LIVING:
        return "a living dispatcher's task is recovered"
    return None


def left_behind(state: State) -> str | None:
    """Return the promise that a state breaks, whatever led to it."""
    task = state.task
    if task.state == RUNNING and state.rows[task.holder].life == LEFT:
        return "a dispatcher exits 0 with a claimed task"
    return None
