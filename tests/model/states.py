"""What a state is. Everything is a tuple of plain values, to be hashed, compared and kept by the million."""

from typing import Final, NamedTuple

from sql.states import TaskState

QUEUED: Final = TaskState.QUEUED.value
RUNNING: Final = TaskState.RUNNING.value
SUCCEEDED: Final = TaskState.SUCCEEDED.value
FAILED: Final = TaskState.FAILED.value
CANCELED: Final = TaskState.CANCELED.value

NOBODY: Final = -1

# A dispatcher's row.
ABSENT: Final = "absent"
LIVING: Final = "living"
LEFT: Final = "left"
CONDEMNED: Final = "condemned"

# A dispatcher's process.
UNBORN: Final = "unborn"
UP: Final = "up"
DRAINING: Final = "draining"
GAVE_UP: Final = "gave up"
GONE: Final = "gone"

# The body of the claim that a process holds. A claim is fresh for half the grace period after the database said that it
# is current; then it is old; it is stale when as long has passed since it ceased to be current.
NOTHING: Final = "nothing"
FRESH: Final = "claimed"
OLD: Final = "claimed long ago"
STALE: Final = "no longer claimed, for long"
BEGUN: Final = "begun"
RETURNED: Final = "returned"
ABANDONED: Final = "abandoned"
"""Given up at the drain deadline: FAILED is to be written."""

WAITING: Final = frozenset({FRESH, OLD, STALE})
ENDED: Final = frozenset({RETURNED, ABANDONED})


class Task(NamedTuple):
    """The task's row. Its attempt is 1 exactly when there is a holder: it is never claimed twice."""

    state: str = QUEUED
    holder: int = NOBODY
    number: int = 0
    cancel: bool = False


class Row(NamedTuple):
    """A dispatcher's row. How often it beat is not kept: what matters is whether it did since somebody looked."""

    life: str = ABSENT
    fence: int = 0


class Process(NamedTuple):
    """What a dispatcher's process remembers."""

    phase: str = UNBORN
    condemned: bool = False
    number: int = 0
    """Of its last claim."""
    unsettled: bool = False
    body: str = NOTHING
    swept: bool = False
    """Its loop has seen the task RUNNING under its id, and not yet compared that with what it holds."""
    suspect: int = NOBODY
    """Whom it is about to condemn, though that one lives."""
    moved: bool = False
    """Its suspect has beaten since it looked."""


class Open(NamedTuple):
    """A claim that has taken the task and is not committed."""

    who: int
    number: int
    awaited: str
    """FRESH or OLD as the claim will be; NOBODY's reply any more: NOTHING."""


class Stray(NamedTuple):
    """A call whose client has given up, and which the server may still receive."""

    call: str
    who: int
    """The dispatcher that it is about: for a condemnation, the suspect."""
    detail: str | int = 0
    moved: bool = False


class Standby(NamedTuple):
    """The database as a standby has it."""

    task: Task
    rows: tuple[Row, ...]


class State(NamedTuple):
    """All there is."""

    task: Task
    rows: tuple[Row, ...]
    processes: tuple[Process, ...]
    open: Open | None = None
    strays: tuple[Stray, ...] = ()
    standby: Standby | None = None
    faults: int = 0
    """How many more there may be; the same of cancels and failovers."""
    cancels: int = 0
    failovers: int = 0
    starts: int = 0
    """How often a body began; `lost` is how many claims a failover has lost."""
    lost: int = 0
    failed_over: bool = False


class Step(NamedTuple):
    """What happened. `detail` and `answer` are of the database where it was asked; a stray's call is `late`."""

    verb: str
    who: int = NOBODY
    detail: str | int = ""
    answer: str = ""
    late: bool = False
    moved: bool = False
    """The beat that a judgement names is not the suspect's last."""


Next = tuple[Step, State]
"""A step, and where it leads."""


def with_row(rows: tuple[Row, ...], who: int, row: Row) -> tuple[Row, ...]:
    """Return the dispatchers' rows with one of them changed."""
    return (*rows[:who], row, *rows[who + 1 :])


def with_process(state: State, who: int, process: Process) -> tuple[Process, ...]:
    """Return the processes with one of them changed."""
    return (*state.processes[:who], process, *state.processes[who + 1 :])


def is_current(state: State, who: int) -> bool:
    """Does this dispatcher, not stopped, hold the task?"""
    return state.task.state == RUNNING and state.task.holder == who and state.rows[who].life == LIVING


def name(who: int) -> str:
    return "ABCDEFGHIJ"[who] if who >= 0 else "-"
