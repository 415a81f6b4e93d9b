"""What becomes of the tasks of a dead dispatcher: this dispatcher as a judge of the others.

At every look, each dispatcher that the watch proves dead is condemned, and the rows of those that are stopped or
unknown are recovered; rows that somebody holds locked are left for the next look. Rows that cannot be written
together are written one at a time, and one that fails alone is set aside for growing periods: it keeps neither the
others nor the watch waiting. Nothing here delays claiming: it has a thread and a connection of its own.
"""

import logging
from collections.abc import Callable
from datetime import timedelta
from threading import Event
from time import monotonic
from uuid import UUID

from tenacity import RetryError

from dispatcher.presence import Place, is_name_free
from dispatcher.retry import Aside, reconnect
from dispatcher.sessions import Caller
from dispatcher.watch import LOOK_SECONDS, Proof, Suspect, Watch
from sql.errors import BeatMoved, DatabaseAway, DatabaseLost, NotFound, TallyError

log = logging.getLogger("tally.recovery")


class Recovery:
    """Looks every second; runs on a thread of its own."""

    def __init__(self, caller: Caller, watch: Watch, backoff: timedelta, may_judge: Callable[[], bool]) -> None:
        self._caller = caller
        self._watch = watch
        self._backoff = backoff
        self._may_judge = may_judge
        self._looked = False
        self._stubborn: set[UUID] = set()
        """Holders whose rows could not be written together."""
        self._aside: Aside[int] = Aside(monotonic)
        self.stop = Event()

    def run(self) -> None:
        """Judge until told to stop."""
        while not self.stop.wait(LOOK_SECONDS if self._looked else 0):
            if not self._may_judge():
                continue
            try:
                for attempt in reconnect(self.stop, self._backoff.total_seconds()):
                    with attempt:
                        self._look()
            except RetryError:
                break
            except TallyError as error:
                # A privilege taken away, say: nothing can be judged now, and nothing else depends on it.
                log.warning("recovery.failed error=%s", error)
            self._looked = True
        self._caller.close()

    def _look(self) -> None:
        try:
            rows = self._caller.call("living_dispatchers")
            suspects = [
                Suspect(id_, beat, host, pid, Place(boot_id, namespace), locked)
                for id_, beat, host, pid, boot_id, namespace, locked in rows
            ]
            for suspect, proof in self._watch.judge(suspects, monotonic(), is_name_free):
                self._condemn(suspect, proof)
            holders = {holder for (holder,) in self._caller.call("stopped_holders")}
            self._stubborn &= holders
            for holder in holders:
                self._recover(holder)
        except DatabaseAway:
            self._watch.forget()
            raise

    def _condemn(self, suspect: Suspect, proof: Proof) -> None:
        """Stop a dispatcher and write what becomes of its tasks; at least stop it, where they cannot be written."""
        # What its process left behind on the server may hold row locks until its statement ends.
        self._caller.call("end_backends", prefix=f"tally:{suspect.id}:")
        only: list[int] | None
        for only in (None, []):
            try:
                written = self._caller.call(
                    "condemn_dispatcher",
                    dispatcher=suspect.id,
                    beat=suspect.beat,
                    why=proof.why,
                    proof=f"{proof.text}; judged by dispatcher {self._caller.dispatcher}",
                    only=only,
                )
            except DatabaseLost:
                raise
            except (BeatMoved, NotFound) as error:
                log.info("dispatcher.spared dispatcher=%s reason=%s", suspect.id, error)
                return
            except TallyError as error:
                log.warning("recovery.failed holder=%s error=%s", suspect.id, error)
                self._stubborn.add(suspect.id)
            else:
                log.warning("dispatcher.condemned dispatcher=%s why=%s proof=%s", suspect.id, proof.why, proof.text)
                _tell(suspect.id, written)
                return

    def _recover(self, holder: UUID) -> None:
        if holder in self._stubborn or not self._write(holder, None):
            self._stubborn.add(holder)
            for task_id, _ in self._caller.call("running_tasks", dispatcher=holder):
                if not self._aside.holds(task_id) and not self._write(holder, [task_id]):
                    self._aside.put(task_id)

    def _write(self, holder: UUID, only: list[int] | None) -> bool:
        """Write what becomes of these tasks of a holder, or of all; False when the database refuses."""
        try:
            _tell(holder, self._caller.call("recover_tasks", dispatcher=holder, only=only))
        except DatabaseLost:
            raise
        except TallyError as error:
            log.warning("recovery.failed holder=%s tasks=%s error=%s", holder, only or "all", error)
            return False
        return True


def _tell(holder: UUID, written: list[tuple[int, str]]) -> None:
    for task_id, state in written:
        log.warning("task.recovered task=%d state=%s holder=%s", task_id, state, holder)
