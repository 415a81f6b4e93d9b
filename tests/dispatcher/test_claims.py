"""Claims against a real database: the order, what a lost reply leaves, and what one bad task may not do to others."""

from collections.abc import Callable
from contextlib import suppress
from itertools import combinations_with_replacement

import pytest

from dispatcher.claims import MANY, Claims
from dispatcher.messages import Claim, Refusal
from dispatcher.retry import Aside
from dispatcher.sessions import Database as Reached
from sql.errors import Condemned, DatabaseAway, DatabaseBusy, DatabaseLost, Misconfigured, TallyError
from tests.dispatcher.background import Background
from tests.dispatcher.given import Clock, a_caller, allow_writes, refuse_writes, registered, state, terminate
from tests.sql import calls
from tests.support.database import Database, role_of_its_own
from tests.support.proxy import Proxy
from tests.support.waiting import wait_until


class Claimer:
    """One dispatcher's claims, with time that passes when it is told to."""

    def __init__(self, database: Database, reached: Reached) -> None:
        self.clock = Clock()
        self.stopping = False
        self.reached = reached
        self.name = reached.name("loop")
        self.caller = a_caller(database, reached, "loop")
        self.claims = Claims(self.caller, "default", lambda: self.stopping, self.clock)

    def take(self, free: int = 10) -> list[Claim | Refusal]:
        return list(self.claims.take(free))

    def may_be_more(self) -> bool:
        return self.claims.is_full

    def unsettled(self) -> int | None:
        return self.claims.unsettled

    def ids(self, free: int = 10) -> list[int]:
        return [taken.id for taken in self.take(free)]


@pytest.fixture
def claimer(database: Database) -> Claimer:
    return Claimer(database, registered(database))


def hasty(database: Database) -> Claimer:
    """A dispatcher whose statements run for 0.3 s at most."""
    return Claimer(database, registered(database, statement_seconds=0.3))


def count_tries(database: Database, task: int, action: str = "perform pg_sleep(10)") -> Callable[[], int]:
    """Let the claim of a task do something first; return how often it was tried so far."""
    database.execute("create sequence tries")
    refuse_writes(database, f"old.id = {task} and new.state = 'RUNNING'", f"perform nextval('tries'); {action}")
    return lambda: int(database.value("select case when is_called then last_value else 0 end from tries"))


def test_tasks_come_by_priority_and_then_in_the_order_they_were_submitted(database: Database, claimer: Claimer) -> None:
    first, second, third, urgent = calls.submit_all(database.connect(), 4)
    database.execute("update tally.task set priority = -1 where id = %s", (urgent,))

    assert claimer.ids(free=2) == [urgent, first]
    assert claimer.may_be_more()
    assert claimer.ids() == [second, third]
    assert not claimer.may_be_more()
    assert claimer.ids() == []


def test_the_first_claim_that_is_not_full_is_followed_by_one_more_look(database: Database, claimer: Claimer) -> None:
    clerk = database.connect()
    calls.submit(clerk, 3)

    looks = []
    for free in (2, 2, 2, 2):
        claimer.take(free)
        looks.append(claimer.claims.look_again)

    # Only the second's commit told the others that this one waits: until then, they woke nobody for it.
    assert looks == [True, True, False, False]


def test_a_claim_is_what_its_row_says(database: Database, claimer: Claimer) -> None:
    task = calls.submit_one(database.connect())

    (claim,) = claimer.take()

    assert isinstance(claim, Claim)
    assert (claim.id, claim.attempt, claim.kind, claim.input) == (task, 1, "echo", '{"n": 0}')
    assert claim.known_at == claimer.clock.now
    claimer.clock.now += 10
    assert claimer.claims.renewed(claim) == claim._replace(known_at=claimer.clock.now)


def test_a_claim_that_was_taken_away_is_not_current(database: Database, claimer: Claimer) -> None:
    calls.submit_one(database.connect())
    (claim,) = claimer.take()
    assert isinstance(claim, Claim)
    database.execute("update tally.task set attempt = 2")
    assert claimer.claims.renewed(claim) is None

    calls.condemn(database.connect(), claimer.reached.dispatcher)

    with pytest.raises(Condemned):
        claimer.claims.renewed(claim)


def test_a_stopped_dispatcher_is_told_so(database: Database, claimer: Claimer) -> None:
    task = calls.submit_one(database.connect())
    calls.condemn(database.connect(), claimer.reached.dispatcher)

    with pytest.raises(Condemned):
        claimer.take()

    assert state(database, task) == "QUEUED"


def test_a_claim_whose_connection_died_before_its_commit_took_nothing(database: Database, claimer: Claimer) -> None:
    task = calls.submit_one(database.connect())
    holder = database.connect()
    with holder.transaction():
        holder.execute("select from tally.dispatcher for update")
        claim = Background(claimer.take)
        wait_for_lock(database, claimer.name)
        terminate(database, claimer.name)
        with pytest.raises(DatabaseLost):
            claim.result()
        assert claimer.unsettled() == 1

    assert claimer.take() == []
    assert claimer.unsettled() is None
    assert state(database, task) == "QUEUED"
    assert claimer.ids() == [task]


def test_a_claim_whose_reply_was_lost_after_its_commit_is_settled_and_no_other_is_made(
    database: Database, proxy: Callable[[str, int], Proxy]
) -> None:
    way = proxy("127.0.0.1", database.server.port)
    claimer = Claimer(database, registered(database, url=way.url_for(database.url)))
    first, second, third = calls.submit_all(database.connect(), 3)
    claimer.caller.ready()
    way.mute()
    claim = Background(lambda: claimer.take(2))
    wait_until(lambda: state(database, second) == "RUNNING", "the claim is committed")

    way.cut()
    with pytest.raises(DatabaseLost):
        claim.result()
    way.thaw()

    assert claimer.ids(free=1) == [first, second]
    assert state(database, third) == "QUEUED"
    assert claimer.may_be_more()
    assert claimer.ids() == [third]


def test_a_claim_still_under_way_when_its_connection_was_lost_is_settled_one_way_or_the_other(
    database: Database, proxy: Callable[[str, int], Proxy]
) -> None:
    way = proxy("127.0.0.1", database.server.port)
    claimer = Claimer(database, registered(database, url=way.url_for(database.url)))
    tasks = calls.submit_all(database.connect(), 2)
    refuse_writes(database, "new.state = 'RUNNING'", "perform pg_advisory_xact_lock(7)")
    holder = database.connect()
    holder.execute("select pg_advisory_lock(7)")
    claim = Background(claimer.take)
    wait_for_lock(database, claimer.name)
    way.cut()
    with pytest.raises(DatabaseLost):
        claim.result()

    settled = Background(claimer.ids)
    wait_until(
        lambda: (
            database.value(
                "select count(*) from pg_stat_activity where application_name = %s and wait_event_type = 'Lock'",
                (claimer.name,),
            )
            == 2
        ),
        "the settlement waits for the claim",
    )
    holder.execute("select pg_advisory_unlock(7)")

    took = settled.result()
    assert took in ([], tasks)
    assert {state(database, task) for task in tasks} == ({"RUNNING"} if took else {"QUEUED"})


def test_settling_goes_on_until_the_database_answers(database: Database, proxy: Callable[[str, int], Proxy]) -> None:
    way = proxy("127.0.0.1", database.server.port)
    claimer = Claimer(database, registered(database, url=way.url_for(database.url)))
    task = calls.submit_one(database.connect())
    claimer.caller.ready()
    way.mute()
    claim = Background(claimer.take)
    wait_until(lambda: state(database, task) == "RUNNING", "the claim is committed")
    way.refuse()
    way.cut()
    with pytest.raises(DatabaseLost):
        claim.result()

    for _ in range(2):
        with pytest.raises(DatabaseAway):
            claimer.take()
        assert claimer.unsettled() == 1

    way.thaw()
    way.accept()
    assert claimer.ids() == [task]


def test_a_connection_that_cannot_be_made_leaves_nothing_to_settle(
    database: Database, proxy: Callable[[str, int], Proxy]
) -> None:
    way = proxy("127.0.0.1", database.server.port)
    claimer = Claimer(database, registered(database, url=way.url_for(database.url)))
    task = calls.submit_one(database.connect())
    way.refuse()

    with pytest.raises(DatabaseAway):
        claimer.take()

    assert claimer.unsettled() is None
    assert state(database, task) == "QUEUED"
    way.accept()
    assert claimer.ids() == [task]


def test_a_database_that_became_read_only_is_away_and_the_next_connection_is_a_new_one(
    database: Database, claimer: Claimer
) -> None:
    task = calls.submit_one(database.connect())
    claimer.caller.ready().execute("set default_transaction_read_only = on")

    with pytest.raises(DatabaseBusy):
        claimer.take()

    assert state(database, task) == "QUEUED"
    assert claimer.unsettled() is None
    assert claimer.ids() == [task]


def test_a_task_whose_claim_is_refused_does_not_keep_the_others_from_running(
    database: Database, claimer: Claimer
) -> None:
    first, bad, last = calls.submit_all(database.connect(), 3)
    refuse_writes(database, f"old.id = {bad} and new.state = 'RUNNING'", "raise exception 'not this one'")

    first_taken, refusal, last_taken = claimer.take()

    assert (first_taken.id, last_taken.id) == (first, last)
    assert refusal == Refusal(bad, "not this one")
    assert state(database, bad) == "QUEUED"


def test_a_refused_task_is_passed_over_until_it_is_forgotten(database: Database, claimer: Claimer) -> None:
    bad = calls.submit_one(database.connect())
    tries = count_tries(database, bad, "raise exception 'not this one'")
    assert claimer.take() == [Refusal(bad, "not this one")]
    tried = tries()

    assert claimer.take() == []
    assert tries() == tried

    allow_writes(database)
    claimer.claims.forget(bad)
    assert claimer.ids() == [bad]


def test_a_task_whose_claim_runs_out_of_time_alone_is_set_aside_and_the_others_go_on(database: Database) -> None:
    claimer = hasty(database)
    first, slow, last = calls.submit_all(database.connect(), 3)
    tries = count_tries(database, slow)

    assert claimer.ids() == [first, last]
    assert tries() == 2  # with the batch, and alone

    later = calls.submit_one(database.connect())
    assert claimer.ids() == [later]
    assert tries() == 2
    assert state(database, slow) == "QUEUED"


def test_a_task_set_aside_is_tried_again_after_ever_longer_periods(database: Database) -> None:
    claimer = hasty(database)
    slow = calls.submit_one(database.connect())
    tries = count_tries(database, slow)
    assert claimer.ids() == []

    for period in (2, 4):
        tried = tries()
        claimer.clock.now += period - 0.1
        assert claimer.ids() == []
        assert tries() == tried, f"tried before {period} s had passed"
        claimer.clock.now += 0.2
        assert claimer.ids() == []
        assert tries() > tried, f"not tried after {period} s"

    allow_writes(database)
    claimer.clock.now += 8.1
    assert claimer.ids() == [slow]


def test_after_a_batch_ran_out_of_time_tasks_are_claimed_one_by_one_for_a_while(database: Database) -> None:
    claimer = hasty(database)
    slow = calls.submit_one(database.connect())
    count_tries(database, slow)
    assert claimer.ids() == []

    numbers = "select array_agg(distinct claim_number) from tally.task where claim_number is not null"
    tasks = calls.submit_all(database.connect(), 2)
    assert claimer.ids() == tasks
    assert len(database.value(numbers)) == 2

    claimer.clock.now += 10.1
    allow_writes(database)
    calls.submit_all(database.connect(), 2)
    assert len(claimer.ids()) == 3
    assert len(database.value(numbers)) == 3


def test_a_round_in_which_nothing_moved_does_not_ask_for_another(database: Database) -> None:
    claimer = hasty(database)
    slow, *held = calls.submit_all(database.connect(), 1 + MANY)
    count_tries(database, slow)
    holder = database.connect()
    with holder.transaction():
        holder.execute("select from tally.task where id = any (%s) for update", (held,))

        assert claimer.ids(free=1) == []
        assert claimer.may_be_more()  # one was set aside: the next may go
        assert claimer.ids(free=1) == []
        assert not claimer.may_be_more()

    assert claimer.ids(free=1) == held[:1]


def test_with_one_slot_a_task_set_aside_does_not_cost_the_next_one_its_turn(database: Database) -> None:
    claimer = hasty(database)
    slow, good = calls.submit_all(database.connect(), 2)
    count_tries(database, slow)

    assert claimer.ids(free=1) == [good]


# What a trigger may raise: the codes of what else would be the world's, or the installation's, fault.
OF_THE_WORLD = ["55P03", "40001", "40P01", "53100", "XX000", "57P03", "08006"]
OF_THE_INSTALLATION = ["42501", "42703", "0A000", "55000"]


@pytest.mark.parametrize("code", OF_THE_WORLD + OF_THE_INSTALLATION)
def test_a_task_that_alone_meets_what_may_be_the_worlds_fault_is_set_aside_and_the_others_go_on(
    database: Database, claimer: Claimer, code: str
) -> None:
    bad, good = calls.submit_all(database.connect(), 2)
    tries = count_tries(database, bad, f"raise exception 'no' using errcode = '{code}'")

    assert claimer.ids(free=1) == [good]

    tried = tries()
    later = calls.submit_one(database.connect())
    assert claimer.ids() == [later]
    assert tries() == tried
    assert state(database, bad) == "QUEUED"
    allow_writes(database)
    claimer.clock.now += 2.1
    assert claimer.ids() == [bad]


@pytest.mark.parametrize("code", OF_THE_WORLD + OF_THE_INSTALLATION)
def test_where_all_tasks_meet_what_may_be_the_worlds_fault_none_is_set_aside(
    database: Database, claimer: Claimer, code: str
) -> None:
    tasks = calls.submit_all(database.connect(), 3)
    refuse_writes(database, "new.state = 'RUNNING'", f"raise exception 'no' using errcode = '{code}'")
    with pytest.raises(TallyError):
        claimer.take()

    allow_writes(database)

    assert claimer.ids() == tasks


@pytest.mark.parametrize("code", ["42501", "55000", "53100"])
def test_a_fault_of_all_that_comes_and_goes_at_any_moment_of_a_round_fails_no_task(
    database: Database, claimer: Claimer, code: str
) -> None:
    connection = database.connect()
    database.execute("create sequence tries; create table broken (first int, last int)")
    refuse_writes(
        database,
        "new.state = 'RUNNING'",
        f"""if nextval('tries') between (select first from broken) and (select last from broken) then
            raise exception 'no' using errcode = '{code}'; end if""",
    )
    for first, last in combinations_with_replacement(range(1, 9), 2):
        database.execute(
            f"alter sequence tries restart; delete from broken; insert into broken values ({first}, {last})"
        )
        tasks = calls.submit_all(connection, 4)
        taken: list[Claim | Refusal] = []
        for _ in range(20):
            with suppress(TallyError):
                # What was taken before an error counts: a list of a call that raised would be lost.
                taken.extend(claimer.claims.take(10))
            claimer.clock.now += 2.1
        assert [each for each in taken if isinstance(each, Refusal)] == [], (first, last)
        assert sorted(each.id for each in taken) == tasks, (first, last)


@pytest.mark.parametrize("code", ["42501", "55P03"])
def test_however_many_tasks_of_one_kind_meet_an_error_the_others_are_found_behind_them(
    database: Database, claimer: Claimer, code: str
) -> None:
    bad = calls.submit_all(database.connect(), 5 * MANY)
    good = calls.submit_one(database.connect())
    refuse_writes(
        database, f"old.id <= {bad[-1]} and new.state = 'RUNNING'", f"raise exception 'no' using errcode = '{code}'"
    )

    rounds = 0
    while state(database, good) == "QUEUED":
        rounds += 1
        assert rounds < 6
        with suppress(TallyError):
            claimer.take(1)


def test_once_one_that_was_set_aside_can_be_claimed_so_can_all(database: Database) -> None:
    claimer = hasty(database)
    tasks = calls.submit_all(database.connect(), 6)
    holder = database.connect()
    with holder.transaction():
        holder.execute("lock table tally.task in share mode")
        assert claimer.ids() == []
    claimer.clock.now += 2.1

    assert claimer.ids() == tasks[:1]
    assert claimer.ids() == tasks[1:]


def test_where_many_are_set_aside_each_stays_longer() -> None:
    aside = Aside[int](Clock())

    periods = [aside.put(task) for task in range(100)]

    # One try in every so many seconds: the others have at least half of the time.
    assert periods[0] == 2
    assert periods[-1] >= 2 * 2 * 99


def test_a_long_round_ends_when_the_dispatcher_stops(database: Database) -> None:
    claimer = hasty(database)
    tasks = calls.submit_all(database.connect(), 3)
    tries = count_tries(database, tasks[0])
    taking = claimer.claims.take(10)

    assert next(taking).id == tasks[1]
    claimer.stopping = True

    assert list(taking) == []
    assert tries() == 2
    assert state(database, tasks[2]) == "QUEUED"


@pytest.mark.parametrize(
    "privilege", ["update on tally.task", "execute on function tally.claim_tasks", "select on tally.task"]
)
def test_a_missing_privilege_is_said_and_no_task_is_failed(database: Database, privilege: str) -> None:
    with role_of_its_own(database) as role:
        url = database.url.replace("postgres@", f"{role}@")
        assert url != database.url
        claimer = Claimer(database, registered(database, url=url))
        tasks = calls.submit_all(database.connect(), 2)
        database.execute(f"revoke {privilege} from {role}")

        for _ in range(2):
            with pytest.raises(Misconfigured, match="permission denied"):
                claimer.take()
            assert {state(database, task) for task in tasks} == {"QUEUED"}

        database.execute(f"grant {privilege} to {role}")
        assert claimer.ids() == tasks


def test_a_paused_queue_gives_nothing(database: Database, claimer: Claimer) -> None:
    task = calls.submit_one(database.connect())
    database.execute("update tally.queue set paused_at = now()")
    assert claimer.take() == []

    database.execute("update tally.queue set paused_at = null")

    assert claimer.ids() == [task]


def wait_for_lock(database: Database, name: str) -> None:
    wait_until(
        lambda: database.value(
            "select bool_or(wait_event_type = 'Lock') from pg_stat_activity where application_name = %s", (name,)
        ),
        f"{name} waits for a lock",
    )


def test_after_a_batch_was_not_answered_in_time_tasks_are_claimed_one_by_one_for_a_while(
    database: Database, proxy: Callable[[str, int], Proxy]
) -> None:
    way = proxy("127.0.0.1", database.server.port)
    claimer = Claimer(database, registered(database, statement_seconds=0.3, url=way.url_for(database.url)))
    assert claimer.ids() == []
    settled = calls.submit_all(database.connect(), 2)
    way.mute()
    with pytest.raises(DatabaseLost):
        claimer.take()
    way.cut()
    way.thaw()
    assert claimer.ids() == settled

    tasks = calls.submit_all(database.connect(), 2)
    assert claimer.ids() == tasks

    numbers = "select count(distinct claim_number) from tally.task where id = any (%s)"
    assert database.value(numbers, (tasks,)) == 2
