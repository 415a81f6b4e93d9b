"""The states of a task and every arrow between them.

QUEUED is open and nobody's: a dispatcher may claim it, a client may cancel it, and a dispatcher whose claim the
database refuses for this very task may fail it. One that is to be tried again later waits for its time first, where no
claim looks, and any dispatcher may release it then.

RUNNING is open and held by one claim. Only the holder may finish it, or put it back for another attempt, if its kind
has one left; a cancel is accepted but leaves it RUNNING until its body has ended. Its own dispatcher may give up a row
that it does not hold, and a judge may recover it once its dispatcher is proven gone or lost: only a kind that says so
is then tried again. A task whose cancel was accepted ends CANCELED, whoever ends it.

SUCCEEDED, FAILED and CANCELED are terminal: nobody may move a task out of them, ever.

The table below, the constraint `state_is_known` and `docs/states.md` are held together by a test.
"""

from enum import StrEnum
from typing import Final


class TaskState(StrEnum):
    """What a task is; the same word in SQL, in JSON, in the log and in the docs."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"

    @property
    def is_terminal(self) -> bool:
        return not TRANSITIONS[self]


class TaskEvent(StrEnum):
    """What can happen to a task; each is one function in `sql/functions/`."""

    CLAIM = "claim_tasks"
    REFUSE = "refuse_claim"
    CANCEL = "cancel_task"
    RELEASE = "release_due_tasks"
    FINISH = "finish_tasks"
    RETRY = "retry_tasks"
    LOSE = "fail_lost_tasks"
    RECOVER = "recover_tasks"


TRANSITIONS: Final[dict[TaskState, dict[TaskEvent, frozenset[TaskState]]]] = {
    TaskState.QUEUED: {
        TaskEvent.CLAIM: frozenset({TaskState.RUNNING}),
        TaskEvent.REFUSE: frozenset({TaskState.FAILED}),
        TaskEvent.CANCEL: frozenset({TaskState.CANCELED}),
        TaskEvent.RELEASE: frozenset({TaskState.QUEUED}),
    },
    TaskState.RUNNING: {
        TaskEvent.CANCEL: frozenset({TaskState.RUNNING}),
        TaskEvent.FINISH: frozenset({TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELED}),
        TaskEvent.RETRY: frozenset({TaskState.QUEUED, TaskState.FAILED, TaskState.CANCELED}),
        TaskEvent.LOSE: frozenset({TaskState.QUEUED, TaskState.FAILED, TaskState.CANCELED}),
        TaskEvent.RECOVER: frozenset({TaskState.QUEUED, TaskState.FAILED, TaskState.CANCELED}),
    },
    TaskState.SUCCEEDED: {},
    TaskState.FAILED: {},
    TaskState.CANCELED: {},
}
