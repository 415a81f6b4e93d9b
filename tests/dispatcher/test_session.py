"""The long-lived session against a real database: what it holds, hears and looks for, and how it comes back."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from queue import SimpleQueue
from time import monotonic
from uuid import uuid4

from dispatcher.messages import Inbox, Message, Word
from dispatcher.presence import here
from dispatcher.publishing import published
from dispatcher.session import Rhythm, Session
from sql import statement
from tests.dispatcher.given import a_task, claimed, reach, running, terminate
from tests.sql import calls
from tests.support.database import Database
from tests.support.proxy import Proxy
from tests.support.waiting import wait_until


class Attended:
    """A session on a thread, and what it said."""

    def __init__(
        self,
        database: Database,
        *,
        beat: float = 0.05,
        cancel_lookup: float = 0.05,
        backoff: float = 0.025,
        statement_seconds: float = 0.5,
        url: str = "",
    ) -> None:
        self.database = database
        self.reached = reach(database, statement_seconds=statement_seconds, url=url)
        self.dispatcher = self.reached.dispatcher
        self.name = self.reached.name("session")
        self.inbox = Inbox()
        self.canceled: SimpleQueue[list[int]] = SimpleQueue()
        self.hints: list[int] = []
        self.turns = 0
        self.may_beat = True
        self.trouble: str | None = None
        rhythm = Rhythm(timedelta(seconds=beat), timedelta(seconds=cancel_lookup), timedelta(seconds=backoff))
        self.session = Session(
            self.reached,
            here(),
            4,
            "default",
            published({"try": a_task("try", lambda _: None, max_attempts=3)}),
            rhythm,
            self.inbox,
            hint=self.hints.append,
            cancel=self._cancel,
            turn=self._turn,
            may_beat=lambda: self.may_beat,
            trouble=lambda: self.trouble,
        )

    def _cancel(self, task_ids: list[int]) -> None:
        if task_ids:
            self.canceled.put(task_ids)

    def _turn(self) -> None:
        self.turns += 1

    @contextmanager
    def runs(self) -> Iterator[None]:
        with running(self.session.run, stop=self.session.stop.set):
            yield

    @contextmanager
    def attends(self) -> Iterator[None]:
        with self.runs():
            assert self.session.entered.wait(10)
            assert self.hears(Word.WOKEN)
            yield

    def hears(self, word: Word) -> bool:
        """Wait until the inbox holds this word."""
        end = monotonic() + 10
        while monotonic() < end:
            if word in self.inbox.get(0.1):
                return True
        return False

    def is_locked(self) -> bool:
        rows = self.database.rows(statement("queries/living_dispatchers"), {"dispatcher": uuid4()})
        return bool({row[0]: row[-1] for row in rows}[self.dispatcher])

    def pids(self) -> list[int]:
        rows = self.database.rows("select pid from pg_stat_activity where application_name = %s", (self.name,))
        return [pid for (pid,) in rows]

    def beat(self) -> int:
        return int(self.database.value("select beat from tally.dispatcher where id = %s", (self.dispatcher,)) or 0)

    def beats_on(self) -> None:
        """Wait until it has beaten twice more."""
        seen = self.beat()
        wait_until(lambda: self.beat() >= seen + 2, "the dispatcher beats", seen=self.beat)


def test_it_enters_the_dispatcher_with_its_lock_held_and_beats(database: Database) -> None:
    attended = Attended(database)
    with attended.attends():
        ((slots, boot_id, network_namespace),) = database.rows(
            "select slots, boot_id, network_namespace from tally.dispatcher where id = %s", (attended.dispatcher,)
        )
        assert (slots, boot_id, network_namespace) == (4, here().boot_id, here().network_namespace)
        assert attended.is_locked()
        attended.beats_on()
    assert attended.turns > 1
    wait_until(lambda: not attended.is_locked(), "the lock is free once the session has ended")


def test_its_kinds_are_published_once_before_anything_can_be_claimed(database: Database) -> None:
    attended = Attended(database)
    with attended.runs():
        assert attended.session.entered.wait(10)

        known = "select kind, max_attempts, published_by from tally.kind"
        assert database.rows(known) == [("try", 3, attended.dispatcher)]
        database.execute("update tally.kind set max_attempts = 5")
        terminate(database, attended.name)
        assert attended.hears(Word.WOKEN)
        attended.beats_on()
        # What another has published since is not taken back by a session that broke.
        assert database.value("select max_attempts from tally.kind") == 5


def test_what_troubles_the_dispatcher_goes_with_its_beat(database: Database) -> None:
    attended = Attended(database)
    trouble = "select trouble from tally.dispatcher"
    with attended.attends():
        assert database.value(trouble) is None

        attended.trouble = "permission denied"
        wait_until(lambda: database.value(trouble) == "permission denied", "the trouble is reported")

        attended.trouble = None
        wait_until(lambda: database.value(trouble) is None, "the trouble is over")


def test_a_submission_wakes_the_loop(database: Database) -> None:
    attended = Attended(database, beat=5, cancel_lookup=5)
    with attended.attends():
        calls.submit_one(database.connect())

        assert attended.hears(Word.WOKEN)


def test_thousands_of_notifications_are_one_word(database: Database) -> None:
    attended = Attended(database)
    with attended.attends():
        for _ in range(5):
            database.execute("select pg_notify('tally_work', n::text) from generate_series(1, 2000) as n")
        attended.beats_on()

        heard: list[Message] = attended.inbox.get(0)
        assert heard == [Word.WOKEN]
        calls.submit_one(database.connect())
        assert attended.hears(Word.WOKEN)


def test_a_terminated_session_comes_back_with_all_it_had_and_looks_again(database: Database) -> None:
    attended = Attended(database)
    (task,) = claimed_by(attended)
    with attended.attends():
        for _ in range(3):
            assert terminate(database, attended.name) == 1

            assert attended.hears(Word.WOKEN), "it did not say to look again"
            attended.beats_on()
            assert attended.is_locked()
            calls.submit_one(database.connect())
            assert attended.hears(Word.WOKEN), "it does not listen"
        calls.cancel(database.connect(), task)
        assert attended.canceled.get(timeout=10) == [task]


def test_a_session_that_was_there_comes_back_at_once_however_often_it_is_ended(database: Database) -> None:
    attended = Attended(database, backoff=60)
    with attended.attends():
        for _ in range(14):
            assert terminate(database, attended.name) == 1
            assert attended.hears(Word.WOKEN), "it waits as after an outage"


def test_one_that_has_not_begun_to_enter_can_be_withdrawn(
    database: Database, proxy: Callable[[str, int], Proxy]
) -> None:
    way = proxy("127.0.0.1", database.server.port)
    way.refuse()
    attended = Attended(database, url=way.url_for(database.url))
    with attended.runs():
        wait_until(lambda: attended.turns > 1, "it tries to connect")
        assert attended.session.withdraw()
        way.accept()

    assert database.value("select count(*) from tally.dispatcher") == 0


def test_one_that_has_begun_to_enter_cannot_be_withdrawn(database: Database) -> None:
    attended = Attended(database)
    with attended.attends():
        assert not attended.session.withdraw()

        attended.beats_on()


def test_a_cancel_is_heard_at_once(database: Database) -> None:
    attended = Attended(database, beat=30, cancel_lookup=30)
    task, _ = claimed_by(attended, 2)
    with attended.attends():
        calls.cancel(database.connect(), task)

        assert attended.canceled.get(timeout=5) == [task]


def test_a_cancel_is_found_without_any_notification(database: Database) -> None:
    attended = Attended(database)
    task, _ = claimed_by(attended, 2)
    with attended.attends():
        database.execute("update tally.task set cancel_requested_at = clock_timestamp() where id = %s", (task,))

        assert attended.canceled.get(timeout=5) == [task]


def test_a_cancel_accepted_while_the_session_was_cut_off_is_found_after(
    database: Database, proxy: Callable[[str, int], Proxy]
) -> None:
    way = proxy("127.0.0.1", database.server.port)
    attended = Attended(database, url=way.url_for(database.url), beat=30, cancel_lookup=30)
    (task,) = claimed_by(attended)
    with attended.attends():
        way.refuse()
        way.cut()
        calls.cancel(database.connect(), task)

        way.accept()

        assert attended.canceled.get(timeout=5) == [task]


def test_a_server_that_says_nothing_more_is_left(database: Database, proxy: Callable[[str, int], Proxy]) -> None:
    way = proxy("127.0.0.1", database.server.port)
    attended = Attended(database, url=way.url_for(database.url), statement_seconds=0.3)
    with attended.attends():
        (pid,) = attended.pids()
        way.mute()
        wait_until(lambda: attended.beat() > 1, "a beat whose reply will not come")
        turns = attended.turns
        wait_until(lambda: attended.turns > turns, "it tries again", seen=lambda: attended.turns)
        way.cut()
        way.thaw()

        assert attended.hears(Word.WOKEN)
        wait_until(lambda: attended.pids() not in ([], [pid]), "it has a new connection", seen=attended.pids)


def test_its_own_half_dead_session_in_the_way_is_ended_and_nothing_else(database: Database) -> None:
    attended = Attended(database)
    half_dead = attended.reached.connect("session")
    other = attended.reached.connect("loop")
    database.connections.callback(half_dead.close)
    database.connections.callback(other.close)
    half_dead.execute(statement("queries/lock_dispatcher"), {"dispatcher": attended.dispatcher})

    with attended.attends():
        assert half_dead.info.backend_pid not in attended.pids()
        assert other.execute("select 1").fetchone() == (1,)


def test_a_lock_that_somebody_else_holds_is_waited_for(database: Database) -> None:
    attended = Attended(database)
    holder = database.connect("somebody")
    holder.execute(statement("queries/lock_dispatcher"), {"dispatcher": attended.dispatcher})
    with attended.runs():
        wait_until(lambda: attended.turns > 2, "it tries to take the lock")
        assert database.value("select count(*) from tally.dispatcher") == 0

        holder.close()

        assert attended.session.entered.wait(10)


def test_a_condemned_dispatcher_is_told_and_its_session_ends(database: Database) -> None:
    attended = Attended(database)
    with attended.attends():
        database.execute(
            "update tally.dispatcher set stopped_at = now(), stopped_why = 'lost', stopped_proof = 'unseen'"
        )

        assert attended.hears(Word.CONDEMNED)
        wait_until(lambda: attended.pids() == [], "its session has ended")


def test_one_that_may_not_beat_any_more_ends_without_another_beat(database: Database) -> None:
    attended = Attended(database)
    with attended.attends():
        attended.may_beat = False
        wait_until(lambda: attended.pids() == [], "its session has ended")
        beat = attended.beat()

        assert attended.session.stop.is_set()
        assert attended.beat() == beat


def test_idle_time_longer_than_a_statement_may_take_is_not_taken_for_a_dead_server(database: Database) -> None:
    attended = Attended(database, beat=1.2, cancel_lookup=1.2, statement_seconds=0.3)
    with attended.attends():
        (pid,) = attended.pids()

        wait_until(lambda: attended.beat() >= 2, "the next beat has come")

        assert attended.pids() == [pid]


def test_it_keeps_trying_while_the_database_cannot_be_reached_and_stops_at_once(
    database: Database, proxy: Callable[[str, int], Proxy]
) -> None:
    way = proxy("127.0.0.1", database.server.port)
    way.refuse()
    attended = Attended(database, url=way.url_for(database.url))

    with attended.runs():
        wait_until(lambda: attended.turns > 3, "it tries again")

    assert not attended.session.entered.is_set()


def test_stopping_does_not_wait_for_the_next_beat(database: Database) -> None:
    attended = Attended(database, beat=30, cancel_lookup=30)
    began = monotonic()

    with attended.attends():
        pass

    assert monotonic() - began < 10


def claimed_by(attended: Attended, count: int = 1) -> list[int]:
    """Claim tasks for a dispatcher before its session enters: the row is made here."""
    calls.register(attended.database.connect(), attended.dispatcher)
    return claimed(attended.database, attended.dispatcher, count)


def test_a_session_that_is_refused_something_tries_on_until_it_is_not(database: Database) -> None:
    attended = Attended(database)
    beat = "tally.beat_dispatcher(uuid, text)"
    with attended.attends():
        database.execute(f"alter function {beat} rename to mislaid")
        turns = attended.turns
        wait_until(lambda: attended.turns > turns + 20, "it tries on")

        database.execute("alter function tally.mislaid rename to beat_dispatcher")

        attended.beats_on()
