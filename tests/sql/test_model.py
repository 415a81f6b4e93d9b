"""The transitions, driven from several connections at once, against a small model.

Each of three connections runs one transaction at a time and may leave it open while the others go on: so calls
interleave as they do between processes, though one after the other. A call that would wait for another's lock gives
up after a few milliseconds and its transaction is rolled back: waiting itself is what the other files here test.

The model keeps what was committed: each task's history, each dispatcher's end. After every commit and rollback
the tables are read and compared with the promises:

- a terminal row never changes again, in any column;
- a state is reached from the state before by an arrow of `sql.states`, and never passed twice;
- the open count of the queue never passes `max_open`;
- no task is claimed twice: its attempt is never above one, and no two claims return it;
- nothing is claimed by a dispatcher that was stopped when the claim began, nor under a number that was settled;
- no RUNNING row is left behind by a dispatcher that left.

That the model can fail was tried by hand, by changing one function at a time. It found each of these:

- claim: the dispatcher's row not locked; the stopped check, the fence check, the state check dropped;
- finish: the state check, the dispatcher check, the cancel dropped;
- submit: the queue's lock dropped; only QUEUED tasks counted as open;
- cancel, refuse, lose, recover: a terminal row not refused; recover: a living dispatcher not refused;
- condemn: the beat not compared; leave: locked for key share only, RUNNING rows not counted.

It did not find a settlement that locks for key share only; test_settle_claim.py does.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Final
from uuid import UUID

import psycopg
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from psycopg.pq import TransactionStatus

from sql.connect import Connection
from sql.states import TRANSITIONS, TaskState
from tests.sql import calls
from tests.support.database import Database

MAX_OPEN = 5
LIFE: Final = "select stopped_at is not null, beat from tally.dispatcher where id = %s"
STOPPED: Final = "select id from tally.dispatcher where stopped_at is not null"
LEFT_BEHIND: Final = """
select task.id from tally.task join tally.dispatcher on dispatcher.id = task.claimed_by
where task.state = 'RUNNING' and dispatcher.stopped_why = 'left'
"""
REFUSALS: Final = {"55P03", "TL404", "TL409", "TL410", "TL411", "TL412", "TL413", "TL414"}

CONNECTIONS = some.integers(0, 2)
WHO = some.integers(0, 2)
STAYS_OPEN = some.booleans()

Row = dict[str, Any]


class Transitions(RuleBasedStateMachine):
    """What clients, dispatchers and judges do, in any order."""

    database: ClassVar[Database]
    connections: ClassVar[list[Connection]]
    clerk: ClassVar[Connection]

    def __init__(self) -> None:
        super().__init__()
        self.database.execute("truncate tally.task, tally.dispatcher restart identity")
        calls.submit_all(self.clerk, 3)
        self.booted = 0
        self.dispatchers = [self._register() for _ in range(3)]
        self.rows: dict[int, Row] = self.look()
        self.claimed: set[tuple[int, int]] = set()
        self.in_doubt: list[set[tuple[int, int]]] = [set() for _ in self.connections]
        self.claiming: dict[int, UUID] = {}
        self.settled: dict[UUID, int] = {}
        self.stopped: set[UUID] = set()
        self.number = 0

    @rule(which=CONNECTIONS, stays_open=STAYS_OPEN, count=some.integers(1, 3))
    def submit(self, which: int, count: int, *, stays_open: bool) -> None:
        self._run(which, lambda connection: calls.submit(connection, count), stays_open)

    @precondition(lambda self: self._in("QUEUED"))
    @rule(which=CONNECTIONS, stays_open=STAYS_OPEN, who=WHO, free=some.integers(1, 3), old=some.booleans())
    def claim(self, which: int, who: int, free: int, *, old: bool, stays_open: bool) -> None:
        dispatcher = self.dispatchers[who]
        settled = self.settled.get(dispatcher, 0)
        self.number += 1
        number = settled if old and settled else self.number
        stopped = dispatcher in self.stopped

        def claim(connection: Connection) -> None:
            rows = calls.claim(connection, dispatcher, number, free=free)
            assert not stopped, "a stopped dispatcher's claim was not refused"
            assert number > settled, "a settled number's claim was not refused"
            assert len(rows) <= free
            self.in_doubt[which] |= {(row.id, row.attempt) for row in rows}
            self.claiming[which] = dispatcher

        self._run(which, claim, stays_open)

    @precondition(lambda self: self.number)
    @rule(which=CONNECTIONS, data=some.data())
    def settle(self, which: int, data: some.DataObject) -> None:
        dispatcher, number = self._fenced(data), self.number
        self._end(which, commit=True)
        self.what_is_committed_keeps_every_promise()

        def settle(connection: Connection) -> None:
            rows = calls.settle(connection, dispatcher, number)
            self._end(which, commit=True)
            self.settled[dispatcher] = number
            held = {
                row["id"]
                for row in self.look().values()
                if (row["claimed_by"], row["claim_number"], row["state"]) == (dispatcher, number, "RUNNING")
            }
            assert {row.id for row in rows} == held, "a settlement did not return what the claim took"

        self._run(which, settle, stays_open=True)

    @precondition(lambda self: self.number)
    @rule(which=CONNECTIONS, stays_open=STAYS_OPEN, who=WHO, good=some.booleans(), data=some.data())
    def finish(self, which: int, who: int, *, good: bool, stays_open: bool, data: some.DataObject) -> None:
        tasks = {self._task(data), self._task(data)}
        dispatcher = self._holder(data, max(tasks)) or self.dispatchers[who]
        make = calls.succeeded if good else calls.failed

        def finish(connection: Connection) -> None:
            verdicts = calls.finish(connection, dispatcher, *(make(task) for task in sorted(tasks)))
            written = [self.rows[task] for task, verdict in verdicts.items() if verdict == "written"]
            for before in written:
                assert not TaskState(before["state"]).is_terminal, "a task ended twice"
                assert before["claimed_by"] in {None, dispatcher}, "another's claim was finished"

        self._run(which, finish, stays_open)

    @rule(which=CONNECTIONS, stays_open=STAYS_OPEN, data=some.data())
    def cancel(self, which: int, *, stays_open: bool, data: some.DataObject) -> None:
        task = self._task(data)
        self._run(which, lambda connection: calls.cancel(connection, task), stays_open)

    @precondition(lambda self: len(self._in("QUEUED")) > 1)
    @rule(which=CONNECTIONS, stays_open=STAYS_OPEN, who=WHO, data=some.data())
    def refuse(self, which: int, who: int, *, stays_open: bool, data: some.DataObject) -> None:
        task = self._task(data)
        self._run(which, lambda connection: calls.refuse(connection, self.dispatchers[who], task), stays_open)

    @precondition(lambda self: self.number)
    @rule(which=CONNECTIONS, stays_open=STAYS_OPEN, who=WHO, attempt=some.integers(0, 1), data=some.data())
    def give_up(self, which: int, who: int, attempt: int, *, stays_open: bool, data: some.DataObject) -> None:
        task = self._task(data)
        dispatcher = self._holder(data, task) or self.dispatchers[who]
        self._run(which, lambda connection: calls.fail_lost(connection, dispatcher, (task, attempt)), stays_open)

    @rule(which=CONNECTIONS, stays_open=STAYS_OPEN, who=WHO)
    def beat(self, which: int, who: int, *, stays_open: bool) -> None:
        self._run(which, lambda connection: calls.beat(connection, self.dispatchers[who]), stays_open)

    @precondition(lambda self: self.number)
    @rule(which=CONNECTIONS, stays_open=STAYS_OPEN, beat=some.integers(0, 2), data=some.data())
    def condemn(self, which: int, beat: int, *, stays_open: bool, data: some.DataObject) -> None:
        dispatcher = self._fenced(data)

        def judge(connection: Connection) -> None:
            ((stopped, at),) = connection.execute(LIFE, (dispatcher,)).fetchall()
            calls.condemn(connection, dispatcher, beat)
            assert stopped or at == beat, "a dispatcher that beat was condemned"

        self._run(which, judge, stays_open)

    @precondition(lambda self: self.stopped)
    @rule(which=CONNECTIONS, stays_open=STAYS_OPEN, who=WHO)
    def recover(self, which: int, who: int, *, stays_open: bool) -> None:
        def judge(connection: Connection) -> None:
            recovered = calls.recover(connection, self.dispatchers[who])
            ((stopped, _),) = connection.execute(LIFE, (self.dispatchers[who],)).fetchall()
            assert stopped or not recovered, "a living dispatcher's tasks were recovered"

        self._run(which, judge, stays_open)

    @precondition(lambda self: self.number)
    @rule(which=CONNECTIONS, stays_open=STAYS_OPEN, data=some.data())
    def leave(self, which: int, *, stays_open: bool, data: some.DataObject) -> None:
        dispatcher = self._fenced(data)
        self._run(which, lambda connection: calls.leave(connection, dispatcher), stays_open)

    @precondition(lambda self: self.stopped)
    @rule(who=WHO)
    def boot(self, who: int) -> None:
        """A new dispatcher takes the place of one that is stopped."""
        if self.dispatchers[who] in self.stopped:
            self.dispatchers[who] = self._register()

    @rule(which=CONNECTIONS, commit=some.booleans())
    def end(self, which: int, *, commit: bool) -> None:
        self._end(which, commit=commit)

    def _register(self) -> UUID:
        self.booted += 1
        return calls.register(self.clerk, UUID(int=self.booted))

    def _run(self, which: int, call: Callable[[Connection], object], stays_open: bool) -> None:
        """Make a call in the connection's transaction, which ends if it is refused, or would have waited."""
        connection = self.connections[which]
        if connection.info.transaction_status == TransactionStatus.IDLE:
            connection.execute("begin")
        try:
            call(connection)
        except psycopg.Error as error:
            assert error.sqlstate in REFUSALS, error
            self._end(which, commit=False)
        else:
            if not stays_open:
                self._end(which, commit=True)

    def _end(self, which: int, *, commit: bool) -> None:
        claims, self.in_doubt[which] = self.in_doubt[which], set()
        self.claiming.pop(which, None)
        if self.connections[which].info.transaction_status == TransactionStatus.IDLE:
            return
        self.connections[which].execute("commit" if commit else "rollback")
        if commit:
            assert not claims & self.claimed, "two claims returned the same attempt of a task"
            self.claimed |= claims

    def _in(self, *states: str) -> list[int]:
        return [task for task, row in self.rows.items() if row["state"] in states]

    def _task(self, data: some.DataObject) -> int:
        """Draw a task, RUNNING ones more often."""
        everyone = some.sampled_from(sorted(self.rows))
        running = self._in("RUNNING")
        return data.draw(some.sampled_from(running) | everyone if running else everyone)

    def _fenced(self, data: some.DataObject) -> UUID:
        """Draw a dispatcher, more often one whose claim is under way."""
        everyone = some.sampled_from(self.dispatchers)
        claiming = sorted(set(self.claiming.values()))
        return data.draw(some.sampled_from(claiming) | everyone if claiming else everyone)

    def _holder(self, data: some.DataObject, task: int) -> UUID | None:
        """Return a task's dispatcher, three times out of four."""
        return self.rows[task]["claimed_by"] if data.draw(some.integers(0, 3)) else None

    def look(self) -> dict[int, Row]:
        names = ("id", "state", "attempt", "claimed_by", "claim_number", "whole")
        rows = self.database.rows(
            "select id, state, attempt, claimed_by, claim_number, task::text from tally.task order by id"
        )
        return {row[0]: dict(zip(names, row, strict=True)) for row in rows}

    @invariant()
    def what_is_committed_keeps_every_promise(self) -> None:
        rows = self.look()
        for task, before in self.rows.items():
            assert task in rows, "a committed task vanished"
            _check_step(before, rows[task])
        for task, row in rows.items():
            assert row["attempt"] <= 1, "a task was claimed twice"
            if row["attempt"] == 1 and (task not in self.rows or self.rows[task]["attempt"] == 0):
                assert (task, 1) in self.claimed, "a claim was committed that returned nothing"
                assert row["claimed_by"] not in self.stopped, "a stopped dispatcher claimed a task"
                assert row["claim_number"] > self.settled.get(row["claimed_by"], 0), "a settled claim took a task"
        assert sum(not TaskState(row["state"]).is_terminal for row in rows.values()) <= MAX_OPEN
        assert self.database.rows(LEFT_BEHIND) == [], "a dispatcher left and left a task behind"
        self.rows = rows
        self.stopped = {dispatcher for (dispatcher,) in self.database.rows(STOPPED)}

    def teardown(self) -> None:
        for which in range(len(self.connections)):
            self._end(which, commit=True)
        self.what_is_committed_keeps_every_promise()


def _check_step(before: Row, after: Row) -> None:
    """Between two looks one transaction was committed at most, which may hold several calls of ours."""
    was, now = TaskState(before["state"]), TaskState(after["state"])
    if was.is_terminal:
        assert before["whole"] == after["whole"], "a terminal row changed"
        return
    reachable = {was}
    for _ in range(2):
        reachable |= {target for state in reachable for targets in TRANSITIONS[state].values() for target in targets}
    assert now in reachable, f"{was} became {now}"


def test_in_any_order_every_promise_is_kept(database: Database) -> None:
    database.execute("update tally.queue set max_open = %s", (MAX_OPEN,))
    database.execute(f"alter database {database.name} set lock_timeout = '4ms'")
    Transitions.database = database
    Transitions.clerk = database.connect("model-clerk")
    Transitions.connections = [database.connect(f"model-{number}") for number in range(3)]

    run_state_machine_as_test(
        Transitions,
        settings=settings(
            max_examples=100,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            # Shrinking would take minutes; the failing steps are printed as they were found.
            phases=[Phase.generate],
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
