"""The real database behind a walk: each step of the model as the call that it is, and its rows beside the model's."""

from typing import Final
from uuid import UUID, uuid4

from psycopg import Error
from psycopg.pq import TransactionStatus

from sql.connect import Connection
from tests.model.states import ABSENT, CANCELED, CONDEMNED, LEFT, LIVING, NOBODY, SUCCEEDED, Options, State, Step
from tests.sql import calls
from tests.support.database import Database

PREPARE: Final = """
alter table tally.task set (autovacuum_enabled = off);
alter table tally.dispatcher set (autovacuum_enabled = off);
create schema standby;
create table standby.task as table tally.task;
create table standby.dispatcher as table tally.dispatcher;
"""
FORGET: Final = "delete from tally.task; delete from tally.dispatcher;"
COPY: Final = """
delete from standby.task;
delete from standby.dispatcher;
insert into standby.task table tally.task;
insert into standby.dispatcher table tally.dispatcher;
"""
TAKE_OVER: Final = f"""
{FORGET}
insert into tally.task overriding system value table standby.task;
insert into tally.dispatcher table standby.dispatcher;
"""
TIME_COMES: Final = """
update tally.task set due_at = due_at - interval '1 day', position = position - 86400000000 where due_at is not null
"""
TASK: Final = """
select
    state, claimed_by, claim_number, cancel_requested_at is not null, attempt,
    case when due_at > clock_timestamp() then 'waits' when due_at is not null then 'due' else '' end
from tally.task
"""
ATTEMPT: Final = "select id, attempt from tally.task"
BEFORE: Final = """
select (ended.entry ->> 'dispatcher')::uuid
from tally.task
cross join jsonb_array_elements(attempts) as ended (entry)
order by (ended.entry ->> 'attempt')::integer
"""
ROWS: Final = "select id, stopped_why, claim_fence, beat from tally.dispatcher"
LIVES: Final = "select stopped_at is null from tally.dispatcher where id = %s"


ANSWERS: Final = {
    "TL404": "unknown",
    "TL409": "already terminal",
    "TL410": "stopped",
    "TL411": "tasks left",
    "TL412": "fenced",
    "TL413": "claimed after all",
    "TL414": "moved",
    "55P03": "gave up waiting",
}
GAVE_UP: Final = ANSWERS["55P03"]


class Real:
    """The database behind a walk: what the model's names are there, and each step as the call that it is."""

    def __init__(self, task: int) -> None:
        self._task = task
        self._ids: list[UUID] = []
        self._beats: dict[UUID, int] = {}
        self._kept_beats: dict[UUID, int] = {}

    def answer(self, connection: Connection, step: Step) -> str:
        """Do what a step does to the database; return the answer in the model's words."""
        try:
            return self._asked(connection, step)
        except Error as error:
            if connection.info.transaction_status != TransactionStatus.IDLE:
                connection.rollback()
            if error.sqlstate not in ANSWERS:
                raise
            return ANSWERS[error.sqlstate]

    def _asked(self, connection: Connection, step: Step) -> str:
        who = self._ids[step.who] if 0 <= step.who < len(self._ids) else uuid4()
        match step.verb:
            case "starts":
                self._ids.append(calls.register(connection))
                self._beats[self._ids[-1]] = 0
            case "claim":
                connection.execute("begin")
                taken = calls.claim(connection, who, int(step.detail), only=[self._task])
                if not taken:
                    connection.commit()
                return self._taken(connection, taken)
            case "commit":
                connection.commit()
            case "rollback" | "server restarts":
                connection.rollback()
            case "settle":
                return self._taken(connection, calls.settle(connection, who, int(step.detail)))
            case "read again":
                return self._read_again(connection, who, step.attempt)
            case "sweeps":
                rows = calls.call(connection, "running_tasks", dispatcher=who)
                assert rows == [(self._task, step.attempt)], rows
            case "lose":
                lost = calls.fail_lost(connection, who, (self._task, step.attempt))
                return "lost" if lost == [self._task] else "nothing"
            case "finish":
                make = calls.succeeded if step.detail == SUCCEEDED else calls.failed
                return calls.finish(connection, who, make(self._task, step.attempt))[self._task]
            case "retry":
                ended = calls.Ended(id=self._task, attempt=step.attempt)
                return calls.retry(connection, who, ended)[self._task].verdict
            case "refuse":
                calls.refuse(connection, who, self._task, attempt=step.attempt)
                return "refused"
            case "its time comes":
                connection.execute(TIME_COMES)
            case "release":
                return "released" if calls.release(connection)[0] == 1 else "nothing"
            case "leave":
                calls.leave(connection, who)
                return "left"
            case "beat":
                self._beats[who] = calls.beat(connection, who)
                return "beat"
            case "suspects" | "condemn" | "recover":
                return self._judged(connection, step)
            case "cancel":
                return "canceled" if calls.cancel(connection, self._task)["state"] == CANCELED else "accepted"
            case "standby stops":
                connection.execute(COPY)
                self._kept_beats = dict(self._beats)
            case "failover":
                connection.rollback()
                connection.execute(TAKE_OVER)
                self._beats = dict(self._kept_beats)
        return ""

    def _taken(self, connection: Connection, rows: list[calls.Claimed]) -> str:
        if not rows:
            return "nothing"
        ((id_, attempt),) = connection.execute(ATTEMPT).fetchall()
        assert [(row.id, row.attempt) for row in rows] == [(id_, attempt)], rows
        return "taken"

    def _read_again(self, connection: Connection, who: UUID, attempt: int) -> str:
        rows = calls.call(connection, "current_claim", dispatcher=who, id=self._task, attempt=attempt)
        ((may_go_on, current),) = rows
        return "stopped" if not may_go_on else "current" if current else "not current"

    def _judged(self, connection: Connection, step: Step) -> str:
        """A judge looks; condemns by the beat that it saw, which is one before where it moved since; or recovers."""
        suspect = self._ids[step.who if step.late else int(step.detail)]
        if step.verb == "suspects":
            living = calls.call(connection, "living_dispatchers", dispatcher=self._ids[step.who])
            assert (suspect, self._beats[suspect]) in [row[:2] for row in living], living
            return ""
        if step.verb == "recover":
            assert calls.call(connection, "stopped_holders") == [(suspect,)]
            return "recovered" if list(calls.recover(connection, suspect)) == [self._task] else "nothing"
        lives = connection.execute(LIVES, (suspect,)).fetchone()
        calls.condemn(connection, suspect, self._beats.get(suspect, 0) - step.moved)
        return "condemned" if lives == (True,) else "stopped already"

    def compare(self, database: Database, state: State) -> None:
        """The rows are those of the model's state."""
        task = state.task
        claimed = (self._ids[task.holder], task.number) if task.holder != NOBODY else (None, None)
        assert database.rows(TASK) == [(task.state, *claimed, task.cancel, task.attempt, task.due)], "the task"
        before = [id_ for (id_,) in database.rows(BEFORE)]
        assert len(before) == task.attempt - (task.holder != NOBODY), "the attempts before"
        for id_, who in zip(before, task.told, strict=False):
            assert who in {NOBODY, self._ids.index(id_)}, "whose attempt"
        lives: dict[str, set[object]] = {LIVING: {None}, LEFT: {"left"}, CONDEMNED: {"exited", "lost"}}
        found = {id_: row for id_, *row in database.rows(ROWS)}
        for id_, row in zip(self._ids, state.rows, strict=False):
            if row.life == ABSENT:
                assert id_ not in found, "a dispatcher that should be unknown"
            else:
                why, fence, beat = found[id_]
                assert why in lives[row.life], f"{why} instead of {row.life}"
                assert (fence, beat) == (row.fence, self._beats[id_]), "fence or beat"


def publish(connection: Connection, options: Options) -> None:
    """Say of the task's kind what the model says; another attempt waits so long that it waits for its time to come."""
    on_crash = "retry" if options.retried_after_crash else "fail"
    calls.publish(connection, max_attempts=options.max_attempts, on_crash=on_crash, backoff_first_seconds=3600)
