"""What becomes of the tasks of a dead dispatcher: this dispatcher as a judge of the others.

At every look, the sessions of each dispatcher that the watch proves dead are ended, it is condemned, and the rows
of those that are stopped or unknown are recovered. Whatever cannot be done now is left for a later look: sessions
that do not end, rows that somebody holds locked. Rows that cannot be written together are written one at a time. A
row that fails alone, and a dispatcher that cannot be condemned, is set aside for growing periods: it keeps neither
the others nor the watch waiting. Nothing here delays claiming: it has a thread and a connection of its own.
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

    def __init__(
        self,
        caller: Caller,
        watch: Watch,
        backoff: timedelta,
        may_judge: Callable[[], bool],
        attending_since: Callable[[], float | None],
    ) -> None:
        self._caller = caller
        self._watch = watch
        self._backoff = backoff
        self._may_judge = may_judge
        self._attending_since = attending_since
        self._stubborn: set[UUID] = set()
        """Holders whose rows could not be written together."""
        self._tasks_aside: Aside[int] = Aside(monotonic)
        self._suspects_aside: Aside[UUID] = Aside(monotonic)
        self._spared: set[UUID] = set()
        """Suspects whose sessions do not end, which was said."""
        self._until = 0.0
        """When the next look is due: what takes long and can be left for it is."""
        self.stop = Event()

    def run(self) -> None:
        """Judge until told to stop."""
        while not self.stop.wait(max(0.0, self._until - monotonic())):
            self._until = monotonic() + LOOK_SECONDS
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
        self._caller.close()

    def _look(self) -> None:
        try:
            rows = self._caller.call("living_dispatchers")
            suspects = [
                Suspect(id_, beat, host, pid, Place(boot_id, namespace), locked)
                for id_, beat, host, pid, boot_id, namespace, locked in rows
            ]
            self._condemn_all(self._watch.judge(suspects, monotonic(), self._attending_since(), is_name_free))
            holders = {holder for (holder,) in self._caller.call("stopped_holders")}
            self._stubborn &= holders
            for holder in holders:
                self._recover(holder)
        except DatabaseAway:
            self._watch.forget()
            raise

    def _condemn_all(self, proven: list[tuple[Suspect, Proof]]) -> None:
        proven = [(suspect, proof) for suspect, proof in proven if not self._suspects_aside.holds(suspect.id)]
        without_sessions = self._end_sessions([suspect for suspect, _ in proven]) if proven else set()
        spared = set()
        for suspect, proof in proven:
            if suspect.id in without_sessions or not proof.ends_sessions:
                self._condemn(suspect, proof)
            else:
                spared.add(suspect.id)
        for dispatcher in spared - self._spared:
            reason = "it beat again, or has a session that does not end, or is not ours to end"
            log.warning("dispatcher.spared dispatcher=%s reason=%s", dispatcher, reason)
        self._spared = spared

    def _end_sessions(self, suspects: list[Suspect]) -> set[UUID]:
        """End what sessions they have on the server; return those that have none left, and no lock.

        What a dead process left behind may hold row locks until its statement ends; a frozen one's session holds its
        proof of life.
        """
        dispatchers, beats = [suspect.id for suspect in suspects], [suspect.beat for suspect in suspects]
        try:
            return {id_ for (id_,) in self._caller.call("end_sessions", dispatchers=dispatchers, beats=beats)}
        except DatabaseLost:
            raise
        except TallyError as error:
            log.warning("recovery.failed holders=%s error=%s", dispatchers, error)
            return set()

    def _condemn(self, suspect: Suspect, proof: Proof) -> None:
        """Stop a dispatcher and write what becomes of its tasks; at least stop it, where they cannot be written."""
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
        self._suspects_aside.put(suspect.id)

    def _recover(self, holder: UUID) -> None:
        if holder in self._stubborn or not self._write(holder, None):
            self._stubborn.add(holder)
            for task_id, _ in self._caller.call("running_tasks", dispatcher=holder):
                if not self._tasks_aside.holds(task_id) and not self._write(holder, [task_id]):
                    self._tasks_aside.put(task_id)
                    if monotonic() >= self._until:
                        return

    def _write(self, holder: UUID, only: list[int] | None) -> bool:
        """Write what becomes of these tasks of a holder, or of all; False when the database refuses."""
        try:
            _tell(holder, self._caller.call("recover_tasks", holder=holder, only=only))
        except DatabaseLost:
            raise
        except TallyError as error:
            log.warning("recovery.failed holder=%s tasks=%s error=%s", holder, only or "all", error)
            return False
        return True


def _tell(holder: UUID, written: list[tuple[int, str]]) -> None:
    for task_id, state in written:
        log.warning("task.recovered task=%d state=%s holder=%s", task_id, state, holder)
