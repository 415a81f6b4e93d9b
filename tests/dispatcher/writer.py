"""Both lanes of the terminal write on a real database, and what they acknowledged."""

from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue

from dispatcher.messages import Report, Verdict
from dispatcher.outcomes import Outcomes
from dispatcher.sessions import Database as Reached
from tests.dispatcher.given import a_caller, running
from tests.support.database import Database
from tests.support.waiting import wait_until


class Writer:
    """Both lanes, and what they acknowledged."""

    def __init__(self, database: Database, reached: Reached) -> None:
        self.reached = reached
        self.dispatcher = reached.dispatcher
        self.turns = 0
        self._acknowledged: SimpleQueue[tuple[Report, Verdict]] = SimpleQueue()
        self.first = a_caller(database, reached, "outcomes")
        self.outcomes = Outcomes(self.first, a_caller(database, reached, "outcomes-2"), self._acknowledge, self._turn)

    def _acknowledge(self, written: list[tuple[Report, Verdict]]) -> None:
        for each in written:
            self._acknowledged.put(each)

    def _turn(self) -> None:
        self.turns += 1

    def put(self, *reports: Report) -> None:
        for report in reports:
            self.outcomes.put(report)

    @contextmanager
    def works(self) -> Iterator[None]:
        first, second = self.outcomes.lanes
        with running(first.run, second.run, stop=self.outcomes.give_up.set):
            yield

    def next(self) -> tuple[Report, Verdict]:
        return self._acknowledged.get(timeout=10)

    def verdicts(self, count: int) -> dict[int, Verdict]:
        return {report.id: verdict for report, verdict in (self.next() for _ in range(count))}

    def acknowledged_nothing_more(self) -> bool:
        try:
            self._acknowledged.get_nowait()
        except Empty:
            return True
        return False


def error_of(database: Database, task: int) -> object:
    return database.value("select error from tally.task where id = %s", (task,))


def await_lock_or_round(writer: Writer) -> None:
    """Wait until the second lane has something that it cannot write."""
    wait_until(lambda: writer.outcomes.lanes[1].pending == 1, "one outcome is with the second lane")
