"""What the search finds without a guard: which promise breaks, within which bounds, or which other guard covers it."""

from typing import Final, NamedTuple

from tests.model.search import STUCK, Found, Search
from tests.model.states import ONCE, Options, State
from tests.model.steps import Dispatchers

LOST: Final = "the database lost this task's outcome, without a failover"
AGAIN: Final = "a body begins twice"
CHANGES: Final = "a terminal task changes"
CLAIMED: Final = "a task is claimed that is claimed already"
STOPPED: Final = "a stopped dispatcher claims a task"
LEFT: Final = "a dispatcher exits 0 with a claimed task"
ANOTHER: Final = "a claim is ended by another dispatcher than its holder"
BEATEN: Final = "a dispatcher is condemned that has beaten since its judge looked"
LONG: Final = "a body begins for a claim that has long ceased to be current"
TAKEN: Final = "a living dispatcher's task is recovered"
EARLY: Final = "a task that waits is claimed before its time"
OLD: Final = "an attempt is ended by a write that names another"
MORE: Final = "there are more attempts than the kind allows"
ASKED_TO_END: Final = "there is another attempt after an accepted cancel"
SINCE: Final = "a task is refused that was claimed since"
CRASHED: Final = "there is another attempt after a crash, against the kind's word"


class Bounds(NamedTuple):
    """How much is searched: processes at once, and the budgets."""

    at_once: int
    faults: int
    failovers: int = 0
    options: Options = ONCE

    def first(self, model: Dispatchers) -> State:
        return model.first(faults=self.faults, failovers=self.failovers, options=self.options)

    def search(self, *without: str) -> Found:
        model = Dispatchers(self.at_once, frozenset(without))
        return Search(model, self.first(model)).run()


ONE: Final = Bounds(1, 2)
TWO: Final = Bounds(2, 2)
LOSING: Final = Bounds(1, 1, failovers=1)
TWICE: Final = Options(2)
REPEATED: Final = Options(2, retried_after_crash=True)
RETRYING: Final = Bounds(1, 2, options=TWICE)
REPEATING: Final = Bounds(1, 2, options=REPEATED)
LOSING_RETRIES: Final = Bounds(1, 1, failovers=1, options=TWICE)
ALL: Final = (ONE, TWO, LOSING, REPEATING)

NEEDED: Final = {
    "claim fence": (ONE, LOST),
    "claim lock": (ONE, STOPPED),
    "claim stopped": (ONE, STOPPED),
    "claim queued": (ONE, CLAIMED),
    "settle lock": (ONE, LOST),
    "settle fence": (ONE, LOST),
    "settle number": (LOSING, AGAIN),
    "fence never sinks": (Bounds(1, 3), LOST),
    "leave count": (LOSING, LEFT),
    "condemn lock": (ONE, STOPPED),
    "condemn beat": (TWO, BEATEN),
    "finish running": (ONE, CHANGES),
    "finish holder": (LOSING, ANOTHER),
    "lose running": (ONE, LOST),
    "cancel open": (ONE, CHANGES),
    "one at a time": (ONE, LOST),
    "sweep looks": (LOSING, STUCK),
    "sweep settled": (ONE, LOST),
    "sweep held": (ONE, LOST),
    "begin fresh": (TWO, LONG),
    "judge looks": (ONE, STUCK),
    "claim due": (RETRYING, EARLY),
    "release due": (RETRYING, EARLY),
    "loop releases": (RETRYING, STUCK),
    "retry running": (RETRYING, CHANGES),
    "retry attempt": (Bounds(1, 2, options=Options(3)), OLD),
    "retry holder": (LOSING_RETRIES, ANOTHER),
    "finish attempt": (LOSING_RETRIES, OLD),
    "lose attempt": (RETRYING, OLD),
    "refuse attempt": (Bounds(2, 1, options=TWICE), SINCE),
    "again left": (RETRYING, MORE),
    "again cancel": (RETRYING, ASKED_TO_END),
    "again crashed": (RETRYING, CRASHED),
    "slots by attempt": (RETRYING, LOST),
}
"""Without it alone, this breaks."""

COVERED: Final = {
    ("leave lock", "drain settles"): (ONE, STOPPED),
    ("drain settles", "leave count"): (ONE, LEFT),
    ("drain waits", "leave count"): (ONE, LEFT),
    ("slots once", "settle number"): (ONE, AGAIN),
    ("lose holder", "sweep own"): (TWO, ANOTHER),
    ("sweep own", "lose holder"): (TWO, ANOTHER),
    ("recover stopped", "judge stopped"): (ONE, TAKEN),
    ("judge stopped", "recover stopped"): (ONE, TAKEN),
    ("condemned is silent", "finish running"): (TWO, CHANGES),
}
"""Without the first alone nothing breaks: the second covers it. Without both, this does."""
