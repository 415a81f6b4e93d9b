"""What happens to a task between its attempts, and to an attempt whose dispatcher dies, freezes or stops."""

from collections.abc import Iterator
from pathlib import Path
from signal import SIGCONT, SIGTERM
from time import monotonic
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest

from sql import statement
from tests.sql import calls
from tests.support.attempts import LIMIT_SECONDS, MODULES, MOST, reconcile, starts
from tests.support.database import Database, holding
from tests.support.namespaces import another_namespace
from tests.support.program import Program
from tests.support.proxy import MakeProxy
from tests.support.server import TestServer
from tests.support.service import Service
from tests.support.waiting import wait_until

ON_PURPOSE = {"reason": "task raised ValueError", "detail": "ValueError: on purpose"}
EXITED = "process exited before worker completion"


class Tried:
    """A service whose tasks are attempted again."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.database: Database = service.database

    def start(self, *arguments: str, **env: str) -> Program:
        """Start another dispatcher."""
        return self.service.run_dispatcher(*MODULES, *arguments, env=env)

    def accepted(self, kind: str, *acts: str, **members: Any) -> int:
        folder = str(self.service.folder)
        return self.service.accepted(kind, folder=folder, acts=list(acts), **members)

    def begun(self, task: int) -> list[int]:
        """Return the attempts that have begun of a task."""
        return [start.attempt for start in starts(self.service.folder) if start.task == task]

    def await_begun(self, task: int, attempt: int, seconds: float = 20) -> None:
        wait_until(
            lambda: attempt in self.begun(task),
            f"attempt {attempt} of task {task} has begun",
            seconds,
            lambda: self.service.api.task(task),
        )

    def open_gate(self) -> None:
        self.service.gate.touch()

    def waits(self, task: int) -> bool:
        return bool(self.database.value("select due_at is not null from tally.task where id = %s", (task,)))

    def await_waiting(self, task: int) -> None:
        wait_until(lambda: self.waits(task), f"task {task} waits for its time", seen=lambda: self.service.row(task))

    def row(self, task: int) -> tuple[Any, ...]:
        (row,) = self.database.rows("select * from tally.task where id = %s", (task,))
        return row

    def follow(self, task: int) -> dict[str, Any]:
        document: dict[str, Any] = self.service.api.follow(task)
        return document

    def reconcile(self, *, open_tasks: int = 0) -> None:
        self.service.reconcile(open_tasks=open_tasks)
        if not open_tasks:
            reconcile(self.database, self.service.folder)


@pytest.fixture
def tried(service: Service) -> Iterator[Tried]:
    service.web = service.run_program("falcon_app")
    made = Tried(service)
    yield made
    made.open_gate()


def reasons(document: dict[str, Any]) -> list[str]:
    return [each["error"]["reason"] for each in document["attempts"] if each["error"] is not None]


def test_what_raises_is_attempted_again_until_an_attempt_succeeds(tried: Tried) -> None:
    dispatcher = tried.start()
    task = tried.accepted("try.thread.fail", "raise", "again", "return")

    end = tried.follow(task)

    assert (end["state"], end["attempt"], end["result"]) == ("SUCCEEDED", 3, {"attempt": 3})
    assert [each["attempt"] for each in end["attempts"]] == [1, 2, 3]
    assert end["attempts"][0]["error"] == ON_PURPOSE
    assert "not yet" in str(end["attempts"][1]["error"])
    assert tried.begun(task) == [1, 2, 3]
    assert dispatcher.stop() == 0
    tried.reconcile()


def test_when_the_last_attempt_raises_too_the_task_is_failed_with_its_error(tried: Tried) -> None:
    dispatcher = tried.start()
    task, final = tried.accepted("try.thread.fail", "raise"), tried.accepted("try.thread.fail", "fail")

    assert [tried.follow(each)["error"] for each in (task, final)] == [
        ON_PURPOSE,
        {"reason": "for good", "detail": None},
    ]
    assert (tried.begun(task), tried.begun(final)) == ([1, 2, 3], [1])
    assert dispatcher.stop() == 0
    tried.reconcile()


@pytest.mark.parametrize("restart", [False, True], ids=["the connection breaks", "the server crashes and restarts"])
def test_a_retry_that_was_committed_but_never_acknowledged_is_neither_run_twice_nor_lost(
    tried: Tried, server: TestServer, proxy: MakeProxy, restart: bool
) -> None:
    way = proxy("127.0.0.1", server.port)
    dispatcher = tried.start("--slots", "4", DATABASE_URL=way.url_for(tried.database.url))
    # The session that writes outcomes is open then.
    tried.follow(tried.accepted("try.thread.fail", "return"))
    task = tried.accepted("try.thread.fail", "gate, then raise", "return")
    tried.await_begun(task, 1)
    way.mute()
    tried.open_gate()
    tried.service.await_state(task, "QUEUED")
    if restart:
        server.kill()
    way.cut()
    server.start()
    way.thaw()

    dispatcher.wait_for(f"task.retried task={task} attempt=1")
    assert dispatcher.saw("verdict=yours already")

    end = tried.follow(task)
    assert (end["state"], end["attempt"]) == ("SUCCEEDED", 2)
    assert tried.begun(task) == [1, 2]
    assert dispatcher.output.count(f"task.retried task={task} ") == 1
    assert dispatcher.stop() == 0
    tried.reconcile()


def test_while_the_database_is_away_a_retry_keeps_its_slot_and_is_written_when_it_is_back(
    tried: Tried, server: TestServer
) -> None:
    dispatcher = tried.start("--slots", "1")
    task = tried.accepted("try.thread.fail", "gate, then raise", "return")
    tried.await_begun(task, 1)
    later = tried.accepted("try.thread.fail", "return")
    server.stop()
    tried.open_gate()
    dispatcher.wait_for("write.failed")

    server.start()

    tried.service.await_recovery()
    assert tried.follow(task)["attempt"] == 2
    assert tried.follow(later)["attempt"] == 1
    begun = [(start.task, start.attempt) for start in starts(tried.service.folder)]
    assert sorted(begun) == [(task, 1), (task, 2), (later, 1)]
    tried.service.await_all()
    assert dispatcher.stop() == 0
    tried.reconcile()


@pytest.mark.parametrize("is_canceled", [False, True], ids=["held", "canceled by whoever held it"])
def test_a_retry_of_a_row_that_is_locked_keeps_its_slot_and_no_other_task(tried: Tried, is_canceled: bool) -> None:
    dispatcher = tried.start("--slots", "2")
    task = tried.accepted("try.thread.fail", "gate, then raise", "return")
    tried.await_begun(task, 1)
    holder = tried.database.connect("holder")
    with holder.transaction():
        holder.execute("select from tally.task where id = %s for update", (task,))
        if is_canceled:
            holder.execute(statement("queries/cancel_task"), {"id": task, "notify": False})
        tried.open_gate()
        dispatcher.wait_for(f"somebody holds the row of task {task}")
        for _ in range(3):
            assert tried.follow(tried.accepted("try.thread.fail", "raise", "return"))["attempt"] == 2
        assert tried.begun(task) == [1]

    end = tried.follow(task)
    if is_canceled:
        assert (end["state"], end["error"]) == ("CANCELED", {"reason": "canceled", "detail": "raised"})
    else:
        assert (end["state"], tried.begun(task)) == ("SUCCEEDED", [1, 2])
    assert dispatcher.stop() == 0
    tried.reconcile()


def test_what_waits_for_its_time_when_its_dispatcher_dies_is_released_by_another(tried: Tried) -> None:
    first = tried.start()
    task = tried.accepted("try.thread.fail", "again", "return", after=2)
    tried.await_waiting(task)
    first.kill()
    assert tried.waits(task)

    second = tried.start()

    end = tried.follow(task)
    assert (end["state"], end["attempt"]) == ("SUCCEEDED", 2)
    assert {start.pid for start in starts(tried.service.folder)} == {first.pid, second.pid}
    assert second.stop() == 0
    tried.reconcile()


def test_what_waits_for_its_time_is_released_by_a_dispatcher_none_of_whose_kinds_is_attempted_again(
    tried: Tried,
) -> None:
    first = tried.start()
    task = tried.accepted("try.later", "again", "return", after=2)
    tried.await_waiting(task)
    assert first.stop() == 0

    # It does not even know the kind: better an end that says so than to wait for ever.
    second = tried.service.run_dispatcher()

    assert tried.follow(task)["error"]["reason"] == "no such kind: try.later"
    assert second.stop() == 0
    tried.reconcile()


def test_a_cancel_of_what_waits_for_its_time_is_its_end(tried: Tried) -> None:
    dispatcher = tried.start()
    task = tried.accepted("try.later", "raise")
    tried.await_waiting(task)

    assert tried.service.api.cancel(task).status == 202

    end = tried.follow(task)
    assert (end["state"], end["attempt"]) == ("CANCELED", 1)
    assert reasons(end) == ["task raised ValueError"]
    assert tried.service.api.cancel(task).status == 409
    assert tried.begun(task) == [1]
    assert dispatcher.stop() == 0
    tried.reconcile()


def test_a_drain_does_not_wait_for_what_waits_for_its_time(tried: Tried) -> None:
    dispatcher = tried.start()
    waiting, soon = tried.accepted("try.later", "raise"), tried.accepted("try.later", "again", after=0.5)
    for task in (waiting, soon):
        tried.await_waiting(task)

    began = monotonic()
    assert dispatcher.stop() == 0

    assert monotonic() - began < 5
    assert {tried.service.state(task) for task in (waiting, soon)} == {"QUEUED"}
    tried.reconcile(open_tasks=2)


def test_a_task_that_may_run_again_after_a_crash_does_so_as_often_as_it_may(tried: Tried) -> None:
    task = tried.accepted("try.thread.retry", "gate")
    for attempt in range(1, MOST + 1):
        killed = tried.start()
        tried.await_begun(task, attempt)
        killed.kill()
    last = tried.start()

    end = tried.follow(task)

    assert (end["state"], end["attempt"]) == ("FAILED", MOST)
    assert reasons(end) == [EXITED] * MOST
    assert all("; (a) exited: " in each["error"]["detail"] for each in end["attempts"])
    assert len({start.pid for start in starts(tried.service.folder)}) == MOST
    assert last.stop() == 0
    tried.reconcile()


def test_a_killed_task_that_may_not_run_again_after_a_crash_does_not_though_it_has_attempts_left(tried: Tried) -> None:
    killed = tried.start()
    task = tried.accepted("try.thread.fail", "gate")
    tried.await_begun(task, 1)
    killed.kill()
    other = tried.start()

    end = tried.follow(task)

    assert (end["state"], end["attempt"], end["error"]["reason"]) == ("FAILED", 1, EXITED)
    assert other.stop() == 0
    tried.reconcile()


def test_a_crash_is_repeated_only_after_the_grace_period_where_its_end_is_not_proven(tried: Tried) -> None:
    killed = tried.start()
    task = tried.accepted("try.thread.retry", "gate")
    tried.await_begun(task, 1)
    server = tried.database.server
    url = f"postgresql://postgres@/{tried.database.name}?host={quote(str(server.folder / 'server'))}&port={server.port}"
    with another_namespace() as elsewhere, elsewhere.entered():
        judge = tried.start(DATABASE_URL=url)
    began = monotonic()
    killed.kill()

    tried.await_begun(task, 2)

    assert monotonic() - began > 3
    tried.open_gate()
    end = tried.follow(task)
    assert (end["state"], end["attempt"]) == ("SUCCEEDED", 2)
    assert reasons(end) == ["dispatcher lost before worker completion"]
    assert "; (b) lost: its lock is free" in end["attempts"][0]["error"]["detail"]
    assert judge.stop() == 0
    tried.reconcile()


def test_a_cancel_that_was_accepted_before_the_crash_is_followed_by_no_attempt(tried: Tried) -> None:
    killed = tried.start()
    task = tried.accepted("try.thread.retry", "insist", seconds=600)
    tried.await_begun(task, 1)
    assert tried.service.api.cancel(task).status == 202
    killed.kill()
    other = tried.start()

    end = tried.follow(task)

    assert (end["state"], end["attempt"]) == ("CANCELED", 1)
    assert other.stop() == 0
    tried.reconcile()


def condemn(database: Database, dispatcher: Program) -> None:
    """Stop a dispatcher as a judge does that has seen it frozen, only sooner."""
    ((id_, beat),) = database.rows("select id, beat from tally.dispatcher where pid = %s", (dispatcher.pid,))
    assert isinstance(id_, UUID)
    calls.condemn(database.connect(), id_, beat, why="lost", proof="(c) frozen")


@pytest.mark.parametrize("how", ["gate", "gate, then raise"], ids=["that returned", "that is to be tried again"])
def test_an_old_attempt_that_ends_after_its_task_was_given_another_changes_nothing(tried: Tried, how: str) -> None:
    frozen = tried.start()
    task = tried.accepted("try.thread.retry", how, "return")
    tried.await_begun(task, 1)
    frozen.freeze()
    condemn(tried.database, frozen)
    other = tried.start()
    tried.await_begun(task, 2)
    end = tried.follow(task)
    before = tried.row(task)

    tried.open_gate()
    frozen.send(SIGCONT)

    assert frozen.wait() == 1
    assert frozen.saw("dispatcher.condemned")
    assert tried.row(task) == before, "the old attempt's end was written"
    assert (end["state"], end["attempt"]) == ("SUCCEEDED", 2)
    assert reasons(end) == ["dispatcher lost before worker completion"]
    assert tried.begun(task) == [1, 2]
    assert other.stop() == 0
    tried.service.reconcile()


def test_a_body_that_does_not_heed_its_time_limit_keeps_its_slot_and_is_followed_by_no_attempt_before_its_end(
    tried: Tried,
) -> None:
    dispatcher = tried.start("--slots", "1")
    task = tried.accepted("try.thread.limited", "insist", "return", seconds=5 * LIMIT_SECONDS)
    tried.await_begun(task, 1)
    later = tried.accepted("try.thread.fail", "return")
    began = monotonic()

    tried.await_begun(later, 1)

    assert monotonic() - began > 3 * LIMIT_SECONDS, "its slot was given away"
    end = tried.follow(task)
    assert (end["state"], end["attempt"]) == ("SUCCEEDED", 2)
    assert reasons(end) == [f"time limit of {LIMIT_SECONDS:g} s passed"]
    assert dispatcher.stop() == 0
    tried.reconcile()


def test_at_the_drain_deadline_what_may_run_again_after_a_crash_is_left_to_recovery(tried: Tried) -> None:
    stopped = tried.start("--slots", "2", TALLY_DRAIN_SECONDS="3", TALLY_DRAIN_RESERVE_SECONDS="2")
    repeated = tried.accepted("try.thread.retry", "gate")
    tried.await_begun(repeated, 1)
    failed = tried.accepted("try.thread.fail", "insist", seconds=600)
    tried.await_begun(failed, 1)
    stopped.send(SIGTERM)

    assert stopped.wait() == 1
    assert tried.service.state(repeated) == "RUNNING"
    assert tried.service.row(failed)[2]["reason"] == "dispatcher stopped before worker completion"
    other = tried.start()

    tried.await_begun(repeated, 2)
    tried.open_gate()
    end = tried.follow(repeated)
    assert (end["state"], end["attempt"]) == ("SUCCEEDED", 2)
    assert reasons(end) == [EXITED]
    assert other.stop() == 0
    tried.reconcile()


def test_at_the_drain_deadline_a_process_is_ended_and_its_next_attempt_may_begin_at_once(tried: Tried) -> None:
    stopped = tried.start("--slots", "2", TALLY_DRAIN_SECONDS="3", TALLY_DRAIN_RESERVE_SECONDS="2")
    repeated, failed = (tried.accepted(f"try.process.{how}", "gate") for how in ("retry", "fail"))
    for task in (repeated, failed):
        tried.await_begun(task, 1)
    (process,) = {start.pid for start in starts(tried.service.folder) if start.task == repeated}
    stopped.send(SIGTERM)

    assert stopped.wait() == 1
    assert tried.service.state(repeated) == "QUEUED"
    assert not Path(f"/proc/{process}").exists()
    assert tried.service.row(failed)[2]["reason"] == "dispatcher stopped before worker completion"
    tried.open_gate()
    other = tried.start()
    end = tried.follow(repeated)
    assert (end["state"], end["attempt"]) == ("SUCCEEDED", 2)
    assert reasons(end) == ["dispatcher stopped before worker completion"]
    assert other.stop() == 0
    tried.reconcile()


def test_no_attempt_begins_before_the_process_of_the_one_before_is_gone_though_it_heeds_nothing(tried: Tried) -> None:
    killed = tried.start("--slots", "1")
    other = tried.start("--slots", "1")
    task = tried.accepted("try.process.retry", "insist", "return", seconds=600)
    tried.await_begun(task, 1)
    (holder,) = tried.database.rows(
        "select pid from tally.dispatcher join tally.task on claimed_by = dispatcher.id where task.id = %s", (task,)
    )
    holding, judging = (killed, other) if holder == (killed.pid,) else (other, killed)
    holding.kill()

    end = tried.follow(task)

    assert (end["state"], end["attempt"], reasons(end)) == ("SUCCEEDED", 2, [EXITED])
    assert judging.stop() == 0
    # Which says that each was alone.
    tried.reconcile()


def test_after_a_second_signal_it_does_not_stay_for_what_is_left_to_recovery(tried: Tried) -> None:
    stopped = tried.start(TALLY_DRAIN_SECONDS="60", TALLY_DRAIN_RESERVE_SECONDS="30")
    task = tried.accepted("try.thread.retry", "gate")
    tried.await_begun(task, 1)
    stopped.send(SIGTERM)
    stopped.wait_for("dispatcher.draining")
    began = monotonic()
    stopped.send(SIGTERM)

    assert stopped.wait() == 1
    assert monotonic() - began < 5
    tried.open_gate()
    other = tried.start()
    assert tried.follow(task)["attempt"] == 2
    assert other.stop() == 0
    tried.reconcile()


def test_what_waits_and_is_locked_keeps_no_other_from_being_released(tried: Tried) -> None:
    dispatcher = tried.start()
    held, other = (tried.accepted("try.later", "again", "return", after=1) for _ in range(2))
    tried.await_waiting(held)
    with holding(tried.database, f"select from tally.task where id = {held} for update"):
        assert tried.follow(other)["attempt"] == 2
        assert tried.begun(held) == [1]

    assert tried.follow(held)["attempt"] == 2
    assert dispatcher.stop() == 0
    tried.reconcile()
