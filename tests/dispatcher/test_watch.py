"""A judge's looks, as a table: who is proven dead by what was seen, and when."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from dispatcher.presence import HAS_PROOF, Place
from dispatcher.watch import Suspect, Watch

HERE = Place("boot 1", "net 1")
ELSEWHERE = Place("boot 2", "net 1")
GRACE = timedelta(seconds=6)
STALL = timedelta(seconds=60)
SUSPECT = Suspect(uuid4(), 7, "host", 4711, ELSEWHERE, locked=False)
LOCKED = replace(SUSPECT, locked=True)


def nobody_is_gone(_: UUID) -> bool:
    return False


def everybody_is_gone(_: UUID) -> bool:
    return True


class Judge:
    """A watch, and the moments at which it looked."""

    def __init__(self, beat: float = 1.0, is_name_free: Callable[[UUID], bool] = nobody_is_gone) -> None:
        self.watch = Watch(HERE, GRACE, STALL, timedelta(seconds=beat))
        self.is_name_free = is_name_free

    def looks(self, *suspects: Suspect, at: float, attending_since: float | None = 0.0) -> list[str]:
        judged = self.watch.judge(list(suspects), at, attending_since, self.is_name_free)
        return [proof.why for _, proof in judged]

    def looks_every_second(self, *suspects: Suspect, first: int, last: int) -> list[list[str]]:
        return [self.looks(*suspects, at=at) for at in range(first, last + 1)]


def test_a_suspect_seen_unchanged_for_the_whole_grace_period_is_lost() -> None:
    judge = Judge()

    assert judge.looks_every_second(SUSPECT, first=0, last=5) == [[]] * 6
    assert judge.looks(SUSPECT, at=5.9) == []
    assert judge.looks(SUSPECT, at=6.0) == ["lost"]


@pytest.mark.parametrize("suspect", [SUSPECT, LOCKED], ids=["free", "locked"])
def test_a_judge_that_could_not_beat_itself_starts_the_watch_anew(suspect: Suspect) -> None:
    judge = Judge()
    given = 6 if suspect is SUSPECT else 60
    judge.looks_every_second(suspect, first=0, last=given - 1)

    # Its beat fails, and so may everybody's; then it goes through.
    assert judge.looks(suspect, at=given, attending_since=None) == []
    back = given + 0.5
    for at in range(given + 1, 2 * given + 1):
        assert judge.looks(suspect, at=at, attending_since=back) == []
    assert judge.looks(suspect, at=2 * given + 1, attending_since=back) == ["lost"]


def test_a_beat_of_the_judge_that_failed_between_two_looks_starts_the_watch_anew() -> None:
    judge = Judge()
    judge.looks_every_second(SUSPECT, first=0, last=5)

    assert judge.looks(SUSPECT, at=6, attending_since=5.5) == []
    assert judge.looks(SUSPECT, at=7, attending_since=5.5) == []


@pytest.mark.skipif(not HAS_PROOF, reason="this system has no abstract socket names")
def test_a_process_that_is_gone_needs_no_watch_and_no_beat_of_the_judge() -> None:
    judge = Judge(is_name_free=everybody_is_gone)

    assert judge.looks(replace(SUSPECT, place=HERE), at=0, attending_since=None) == ["exited"]


def test_a_beat_that_moves_starts_the_watch_anew() -> None:
    judge = Judge()
    judge.looks_every_second(SUSPECT, first=0, last=5)

    beaten = replace(SUSPECT, beat=8)

    assert judge.looks_every_second(beaten, first=6, last=11) == [[]] * 6
    assert judge.looks(beaten, at=12) == ["lost"]


def test_one_whose_lock_is_held_is_lost_after_the_whole_stall_limit_once_its_sessions_are_gone() -> None:
    judge = Judge()

    assert judge.looks_every_second(LOCKED, first=0, last=59) == [[]] * 60
    ((_, proof),) = judge.watch.judge([LOCKED], 60.0, 0.0, nobody_is_gone)
    assert (proof.why, proof.ends_sessions) == ("lost", True)
    assert proof.text.startswith("(c) frozen or cut off: ")
    assert "unchanged for 60.0 s" in proof.text


def test_one_that_beats_under_its_lock_is_never_lost() -> None:
    judge = Judge()

    assert [judge.looks(replace(LOCKED, beat=at // 59), at=at) for at in range(600)] == [[]] * 600


def test_a_beat_just_before_the_stall_limit_starts_the_watch_anew() -> None:
    judge = Judge()
    judge.looks_every_second(LOCKED, first=0, last=59)

    beaten = replace(LOCKED, beat=8)

    assert judge.looks_every_second(beaten, first=60, last=119) == [[]] * 60
    assert judge.looks(beaten, at=120) == ["lost"]


def test_a_free_name_proves_nothing_while_the_lock_is_held() -> None:
    judge = Judge(is_name_free=everybody_is_gone)

    assert judge.looks_every_second(replace(LOCKED, place=HERE), first=0, last=59) == [[]] * 60


def test_a_lock_held_in_between_gives_the_whole_grace_period_anew() -> None:
    judge = Judge()
    judge.looks_every_second(SUSPECT, first=0, last=4)
    judge.looks(LOCKED, at=5)

    assert judge.looks_every_second(SUSPECT, first=6, last=11) == [[]] * 6
    assert judge.looks(SUSPECT, at=12) == ["lost"]


def test_a_lock_that_is_freed_just_before_the_stall_limit_gives_the_whole_grace_period() -> None:
    judge = Judge()
    judge.looks_every_second(LOCKED, first=0, last=59)

    assert judge.looks_every_second(SUSPECT, first=60, last=65) == [[]] * 6
    assert judge.looks(SUSPECT, at=66) == ["lost"]


@pytest.mark.parametrize("period", [2, 3, 6])
def test_a_lock_that_comes_and_goes_keeps_nobody_beyond_the_stall_limit(period: int) -> None:
    judge = Judge()

    looks = [judge.looks(replace(SUSPECT, locked=at % period == 0), at=at) for at in range(60)]

    assert looks == [[]] * 60
    assert any(judge.looks(replace(SUSPECT, locked=at % period == 0), at=at) for at in range(60, 60 + period))


def test_a_gap_starts_the_watch_of_a_held_lock_anew() -> None:
    judge = Judge()
    judge.looks_every_second(LOCKED, first=0, last=58)

    assert judge.looks_every_second(LOCKED, first=61, last=120) == [[]] * 60
    assert judge.looks(LOCKED, at=121) == ["lost"]


@pytest.mark.parametrize(("beat", "gap"), [(0.2, 2.1), (1.0, 2.1), (5.0, 10.1)])
def test_a_gap_over_two_beats_starts_the_watch_anew(beat: float, gap: float) -> None:
    judge = Judge(beat)
    judge.looks_every_second(SUSPECT, first=0, last=5)

    assert judge.looks(SUSPECT, at=5 + gap) == []
    assert judge.looks(SUSPECT, at=5 + gap + 1) == []


def test_a_gap_of_less_than_two_beats_does_not() -> None:
    judge = Judge(beat=1.0)
    judge.looks_every_second(SUSPECT, first=0, last=4)

    assert judge.looks(SUSPECT, at=5.9) == []
    assert judge.looks(SUSPECT, at=7.8) == ["lost"]


def test_a_session_that_broke_starts_the_watch_anew() -> None:
    judge = Judge()
    judge.looks_every_second(SUSPECT, first=0, last=5)

    judge.watch.forget()

    assert judge.looks_every_second(SUSPECT, first=6, last=11) == [[]] * 6
    assert judge.looks(SUSPECT, at=12) == ["lost"]


def test_a_suspect_that_was_gone_in_between_is_watched_anew() -> None:
    judge = Judge()
    judge.looks_every_second(SUSPECT, first=0, last=4)
    judge.looks(at=5)

    assert judge.looks_every_second(SUSPECT, first=6, last=11) == [[]] * 6


@pytest.mark.skipif(not HAS_PROOF, reason="this system has no abstract socket names")
def test_a_free_name_in_the_judges_own_place_proves_at_the_first_look_that_the_process_is_gone() -> None:
    judge = Judge(is_name_free=everybody_is_gone)

    assert judge.looks(replace(SUSPECT, place=HERE), at=0) == ["exited"]


@pytest.mark.parametrize(
    "place", [ELSEWHERE, Place("boot 1", "net 2"), Place("", ""), Place("boot 1", ""), Place("", "net 1")]
)
def test_a_free_name_proves_nothing_about_another_place(place: Place) -> None:
    judge = Judge(is_name_free=everybody_is_gone)

    assert judge.looks(replace(SUSPECT, place=place), at=0) == []


def test_two_unknown_places_are_not_the_same_place() -> None:
    unknown = Place("", "")
    watch = Watch(unknown, GRACE, STALL, timedelta(seconds=1))

    assert watch.judge([replace(SUSPECT, place=unknown)], 0, 0, everybody_is_gone) == []


def test_a_name_that_is_held_in_the_same_place_leaves_it_to_the_grace_period() -> None:
    judge = Judge()
    here = replace(SUSPECT, place=HERE)

    assert judge.looks_every_second(here, first=0, last=5) == [[]] * 6
    assert judge.looks(here, at=6) == ["lost"]


def test_each_suspect_is_watched_for_itself() -> None:
    judge = Judge()
    other = replace(SUSPECT, id=uuid4())
    judge.looks_every_second(SUSPECT, first=0, last=2)

    assert judge.looks_every_second(SUSPECT, other, first=3, last=5) == [[]] * 3
    ((dead, proof),) = judge.watch.judge([SUSPECT, other], 6, 0.0, nobody_is_gone)
    assert dead.id == SUSPECT.id
    assert "unchanged for 6.0 s" in proof.text
