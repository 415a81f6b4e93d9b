"""Tasks whose bodies run until a gate opens: what a dispatcher holds when something happens to it."""

from pathlib import Path
from typing import Any

from tests.support.ledger import Ledger
from tests.support.tasks import effects
from tests.support.waiting import wait_until


class Bodies:
    """Tasks whose bodies run until the gate opens."""

    def __init__(self, ledger: Ledger, folder: Path) -> None:
        self.ledger = ledger
        self.gate = folder / "gate"
        self.left = folder / "effects"
        self._begun = 0

    def begin(self, count: int = 1) -> list[int]:
        """Submit so many, and wait until their bodies run."""
        tasks = self.ledger.submit_many("gate", [{"gate": str(self.gate), "effects": str(self.left)}] * count)
        self._begun += count
        wait_until(lambda: len(effects(self.left)) == self._begun, "their bodies have started")
        return tasks

    def rows(self, tasks: list[int]) -> list[Any]:
        """Return all there is of these tasks."""
        return self.ledger.database.rows("select * from tally.task where id = any (%s) order by id", (tasks,))

    def details(self, tasks: list[int]) -> list[str]:
        return [self.ledger.task(task)["error"]["detail"] for task in tasks]

    def reconcile(self) -> None:
        self.ledger.reconcile(effects(self.left))
