"""What the search finds without a guard: which promise breaks, within which bounds, or which other guard covers it."""

from typing import Final, NamedTuple

from tests.model.search import STUCK, Found, Search
from tests.model.states import State
from tests.model.steps import Dispatchers

LOST: Final = "the database lost this task's outcome, without a failover"
TWICE: Final = "a body begins twice"
CHANGES: Final = "a terminal task changes"
STOPPED: Final = "a stopped dispatcher claims a task"
LEFT: Final = "a dispatcher exits 0 with a claimed task"
ANOTHER: Final = "a claim is ended by another dispatcher than its holder"
BEATEN: Final = "a dispatcher is condemned that has beaten since its judge looked"
LONG: Final = "a body begins for a claim that has long ceased to be current"
TAKEN: Final = "a living dispatcher's task is recovered"


class Bounds(NamedTuple):
    """How much is searched: processes at once, and the budgets."""

    at_once: int
    faults: int
    failovers: int = 0

    def first(self, model: Dispatchers) -> State:
        return model.first(faults=self.faults, failovers=self.failovers)

    def search(self, *without: str) -> Found:
        model = Dispatchers(self.at_once, frozenset(without))
        return Search(model, self.first(model)).run()


ONE: Final = Bounds(1, 2)
TWO: Final = Bounds(2, 2)
LOSING: Final = Bounds(1, 1, failovers=1)
ALL: Final = (ONE, TWO, LOSING)

NEEDED: Final = {
    "claim fence": (ONE, LOST),
    "claim lock": (ONE, STOPPED),
    "claim stopped": (ONE, STOPPED),
    "claim queued": (ONE, CHANGES),
    "settle lock": (ONE, LOST),
    "settle fence": (ONE, LOST),
    "settle number": (LOSING, TWICE),
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
}
"""Without it alone, this breaks."""

COVERED: Final = {
    ("leave lock", "drain settles"): (ONE, STOPPED),
    ("drain settles", "leave count"): (ONE, LEFT),
    ("drain waits", "leave count"): (ONE, LEFT),
    ("slots once", "settle number"): (ONE, TWICE),
    ("lose holder", "sweep own"): (TWO, ANOTHER),
    ("sweep own", "lose holder"): (TWO, ANOTHER),
    ("recover stopped", "judge stopped"): (ONE, TAKEN),
    ("judge stopped", "recover stopped"): (ONE, TAKEN),
    ("condemned is silent", "finish running"): (TWO, CHANGES),
}
"""Without the first alone nothing breaks: the second covers it. Without both, this does."""
