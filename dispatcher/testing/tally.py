"""What the fixture `tally` is: a database of the test's own, what runs its tasks, and questions about them.

    def test_a_report_is_built(tally):
        task_id = build.submit({"month": "2026-01"})

        tally.run_pending()

        tally.assert_succeeded(task_id, result={"rows": 3})

Every question is asked of the database, each time. A question that fails says what the row holds.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any, Final
from uuid import uuid4

from dispatcher import submitting, text_stats
from dispatcher.context import Cancel
from dispatcher.kinds import KINDS
from dispatcher.publishing import published
from dispatcher.sessions import Caller, Database
from dispatcher.testing.documents import TaskDocument, document
from dispatcher.testing.runner import running
from sql.errors import NotFound
from sql.settings import Settings, read
from sql.states import TaskState

ATTEMPTS: Final = 1000
"""So many may a queue take to its end: beyond that, tasks submit each other for ever."""

_ANYTHING: Final[Any] = object()


class Tally:
    """A test's database, which is clean when the test begins and gone when it has ended."""

    def __init__(self, url: str, settings: Settings, caller: Caller) -> None:
        self.url: Final = url
        """Where it is, as DATABASE_URL says too."""
        self._settings = settings
        self._caller = caller
        self._cancels: dict[int, Cancel] = {}

    def __repr__(self) -> str:
        return f"<Tally {self.url}>"

    def publish(self) -> None:
        """Publish the kinds declared so far, as a dispatcher does when it starts; their queues are made.

        Done when the fixture is made and before tasks are run: needed only for a kind that a test itself declares,
        before one is submitted.
        """
        self._caller.call("publish_kinds", kinds=published(KINDS))

    def run_pending(self, queue: str = "default", *, attempts: int = ATTEMPTS) -> list[TaskDocument]:
        """Run a queue to its end, in this thread; return the tasks that were run, in the order of their first attempts.

        What a body submits is run too, and what waits for its next attempt does not wait. AssertionError when there is
        more to run after so many attempts.
        """
        __tracebackhide__ = True
        ran: list[int] = []
        with running(self.url, queue, self._settings, self._cancels) as runner:
            while len(ran) < attempts and (task_id := runner.run_next()) is not None:
                ran.append(task_id)
        left = self.tasks(queue=queue, state=TaskState.QUEUED) if len(ran) == attempts else []
        if left:
            raise AssertionError(f"queue {queue} is not at its end after {attempts} attempts; the next: {left[0]}")
        return [self.task(task_id) for task_id in dict.fromkeys(ran)]

    def run_next(self, queue: str = "default") -> TaskDocument | None:
        """Run one attempt, of the task that a dispatcher would claim first; return the task, None where none is left.

        Where all that are left wait for their next attempt, the first that is due does not wait.
        """
        with running(self.url, queue, self._settings, self._cancels) as runner:
            task_id = runner.run_next()
        return None if task_id is None else self.task(task_id)

    def cancel(self, task_id: int) -> TaskDocument:
        """Cancel a task as the API does, and return it: CANCELED, or RUNNING until its body has ended.

        Of a task that runs in this process the flag is raised at once: a body, or what it calls, may cancel itself.
        Raises `NotFound` and `AlreadyTerminal` of `sql.errors`.
        """
        ((text,),) = self._caller.call("cancel_task", id=task_id, notify=True)
        if (running_here := self._cancels.get(task_id)) is not None:
            running_here.set()
        return document(text)

    def task(self, task_id: int) -> TaskDocument:
        """Return a task as it is now. Raises `NotFound`."""
        for (text,) in self._caller.call("task_by_id", id=task_id):
            return document(text)
        raise NotFound(f"there is no task {task_id}")

    def tasks(
        self, kind: str | None = None, *, queue: str | None = None, state: TaskState | None = None
    ) -> list[TaskDocument]:
        """Return all tasks, of this kind, queue and state where they are given, oldest first."""
        wanted = {"kind": kind, "queue": queue, "state": state}
        return [
            task
            for task in (document(text) for (text,) in self._caller.call("all_tasks"))
            if all(value is None or getattr(task, name) == value for name, value in wanted.items())
        ]

    def wait_until_ended(self, task_id: int, seconds: float = 20) -> TaskDocument:
        """Wait for a task that a dispatcher's process runs, and return it; AssertionError when that takes longer."""
        __tracebackhide__ = True
        end = monotonic() + seconds
        while not (task := self.task(task_id)).state.is_terminal:
            if monotonic() > end:
                raise AssertionError(f"after {seconds:g} s {task}")
            sleep(0.02)
        return task

    def assert_succeeded(self, task_id: int, result: Any = _ANYTHING) -> TaskDocument:
        """The task is SUCCEEDED, with this result where one is given; return it."""
        __tracebackhide__ = True
        task = self._in_state(task_id, TaskState.SUCCEEDED)
        if result is not _ANYTHING and task.result != result:
            raise AssertionError(f"expected the result {result!r}; {task}")
        return task

    def assert_failed(self, task_id: int, reason: str | None = None, *, detail: str | None = None) -> TaskDocument:
        """The task is FAILED, for just this reason, with a detail that contains this text; return it."""
        __tracebackhide__ = True
        task = self._in_state(task_id, TaskState.FAILED)
        if reason is not None and task.reason != reason:
            raise AssertionError(f"expected the reason {reason!r}; {task}")
        if detail is not None and detail not in (task.detail or ""):
            raise AssertionError(f"expected a detail that contains {detail!r}; {task}")
        return task

    def assert_canceled(self, task_id: int) -> TaskDocument:
        """The task is CANCELED; return it."""
        __tracebackhide__ = True
        return self._in_state(task_id, TaskState.CANCELED)

    def assert_queued(self, kind: str, count: int | None = None, *, queue: str | None = None) -> list[TaskDocument]:
        """So many tasks of this kind are QUEUED, at least one where no number is given; return them.

        One that waits for its next attempt is among them: its `due_at` is set.
        """
        __tracebackhide__ = True
        queued = self.tasks(kind, queue=queue, state=TaskState.QUEUED)
        if not queued if count is None else len(queued) != count:
            there = "\n".join(f"    {task.id} {task.kind} {task.queue} {task.state}" for task in self.tasks())
            expected = "a task" if count is None else f"{count} tasks"
            raise AssertionError(
                f"expected {expected} of kind {kind} QUEUED{f' in queue {queue}' if queue else ''}, found "
                f"{len(queued)}; all tasks:\n{there or '    none'}"
            )
        return queued

    def _in_state(self, task_id: int, state: TaskState) -> TaskDocument:
        __tracebackhide__ = True
        task = self.task(task_id)
        if task.state is not state:
            raise AssertionError(f"expected {state}; {task}")
        return task


@contextmanager
def tally_on(url: str) -> Iterator[Tally]:
    """Yield what the fixture is, on a migrated database; a kind that the test itself declares is forgotten afterwards.

    Raises `BadSettings` for those of the environment.
    """
    settings = read(os.environ)
    declared_before = set(KINDS)
    # As every dispatcher does; forgotten with those of the test.
    text_stats.declare(settings.max_words)
    caller = Caller(Database(url, uuid4(), settings.connect, settings.statement), "test")
    try:
        # What was submitted before may have gone elsewhere; it would go there still.
        submitting.close()
        made = Tally(url, settings, caller)
        made.publish()
        yield made
    finally:
        submitting.close()
        caller.close()
        for kind in KINDS.keys() - declared_before:
            # One of a module that was only now imported stays: it will not be imported again.
            if "<locals>" in getattr(KINDS[kind].body, "__qualname__", ""):
                del KINDS[kind]
