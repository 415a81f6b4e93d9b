"""RUNNING rows under this dispatcher's id that it does not hold: a database that was set back, say, brought them.

How they ended nobody can know, so they are never started: they are FAILED, or wait for another attempt where their
kind is attempted again after a crash. One that cannot be written alone is set aside for growing periods, and keeps
neither the others nor claims.
"""

import logging
from collections.abc import Callable

from dispatcher.retry import Aside, may_be_one_rows
from dispatcher.sessions import Caller
from sql.errors import TallyError

log = logging.getLogger("tally.loop")


class LostTasks:
    """Looked for by the loop alone, with no claim in flight or unsettled."""

    def __init__(
        self,
        caller: Caller,
        held: Callable[[], dict[int, int]],
        may_go_on: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        """`held` returns the claims held, task id to attempt; `may_go_on` is asked between rows that take long."""
        self._caller = caller
        self._held = held
        self._may_go_on = may_go_on
        self._aside: Aside[int] = Aside(clock)

    def fail(self) -> None:
        """Look for them and write what can be written. Raises what concerns more than these rows."""
        rows: dict[int, int] = dict(self._caller.call("running_tasks"))
        # Read after the rows: a task that ended meanwhile is still among them, and its write finds that attempt over.
        held = self._held()
        lost = {task: attempt for task, attempt in rows.items() if held.get(task) != attempt}
        lost = {task: attempt for task, attempt in lost.items() if not self._aside.holds(task)}
        if lost:
            self._write(lost)

    def _write(self, lost: dict[int, int]) -> None:
        try:
            written = self._caller.call("fail_lost_tasks", ids=list(lost), attempts=list(lost.values()))
        except TallyError as error:
            if not may_be_one_rows(error):
                raise
            log.error("task.lost_unwritten tasks=%s error=%s", list(lost), error)  # noqa: TRY400 - no bug of ours
            self._write_alone(lost)
            return
        for (task_id,) in written:
            log.error("task.lost task=%d", task_id)

    def _write_alone(self, lost: dict[int, int]) -> None:
        if len(lost) == 1:
            self._aside.put(*lost)
            return
        for task_id, attempt in lost.items():
            if not self._may_go_on():
                return
            self._write({task_id: attempt})
