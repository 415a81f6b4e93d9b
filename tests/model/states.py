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
RAISED: Final = "raised"
"""Another attempt is to be asked for."""
ABANDONED: Final = "abandoned"
"""Given up at the drain deadline: FAILED is to be written."""

WAITING: Final = frozenset({FRESH, OLD, STALE})
ENDED: Final = frozenset({RETURNED, RAISED, ABANDONED})

# A QUEUED task that waits for its time.
EARLY: Final = "waits"
DUE: Final = "due"


class Options(NamedTuple):
    """What the task's kind says, as the database has it."""

    max_attempts: int = 1
    retried_after_crash: bool = False


ONCE: Final = Options()


class Task(NamedTuple):
    """The task's row."""

    state: str = QUEUED
    holder: int = NOBODY
    number: int = 0
    cancel: bool = False
    attempt: int = 0
    due: str = ""
    """EARLY or DUE where it waits for its time."""
    told: tuple[int, ...] = ()
    """By whose outcome each attempt has ended; where a judgement or a cancel did that, NOBODY's."""


class Row(NamedTuple):
    """A dispatcher's row. How often it beat is not kept: what matters is whether it did since somebody looked."""

    life: str = ABSENT
    fence: int = 0


class Held(NamedTuple):
    """A claim that a process holds: a slot."""

    attempt: int
    body: str


class Process(NamedTuple):
    """What a dispatcher's process remembers."""

    phase: str = UNBORN
    condemned: bool = False
    number: int = 0
    """Of its last claim."""
    unsettled: bool = False
    held: tuple[Held, ...] = ()
    """In the order of their attempts, of which each is there once."""
    swept: int = 0
    """Its loop has seen this attempt RUNNING under its id, and not yet compared that with what it holds."""
    refused: int = NOBODY
    """The attempt that the task had when the database refused a claim of this very task, which is to be written."""
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
    attempt: int = 0


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
    begins: tuple[int, ...] = (1,)
    """How often each attempt's body may still begin: once, and once more for each claim that a failover has lost."""
    failed_over: bool = False
    options: Options = ONCE


class Step(NamedTuple):
    """What happened. `detail` and `answer` are of the database where it was asked; a stray's call is `late`."""

    verb: str
    who: int = NOBODY
    detail: str | int = ""
    answer: str = ""
    late: bool = False
    moved: bool = False
    """The beat that a judgement names is not the suspect's last."""
    attempt: int = 0
    """The one that a write names, or whose body it is."""


Next = tuple[Step, State]
"""A step, and where it leads."""


def with_row(rows: tuple[Row, ...], who: int, row: Row) -> tuple[Row, ...]:
    """Return the dispatchers' rows with one of them changed."""
    return (*rows[:who], row, *rows[who + 1 :])


def with_process(state: State, who: int, process: Process) -> tuple[Process, ...]:
    """Return the processes with one of them changed."""
    return (*state.processes[:who], process, *state.processes[who + 1 :])


def is_current(state: State, who: int, attempt: int) -> bool:
    """Is this the task's attempt, held by this dispatcher, which is not stopped?"""
    task = state.task
    return (task.state, task.holder, task.attempt) == (RUNNING, who, attempt) and state.rows[who].life == LIVING


def name(who: int) -> str:
    return "ABCDEFGHIJ"[who] if who >= 0 else "-"
