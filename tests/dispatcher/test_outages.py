"""Outages, searched with a clock of half-second ticks: who is back in time is spared, who is gone is condemned in time.

The judge is a real watch. Around it stand the rules of what it meets, as few as there are: a session holds the lock
until it ends on the server, a beat goes through a session, and a condemnation names the beat that was watched and is
refused once that moved. What falls into one tick is tried in both orders. The database's clock is nowhere: nothing
here could read it.

Judges share nothing and suspects share nothing, so a world has one judge, and beside each other suspects for every
moment at which one may come back, die or freeze: any few of them, in any order, are among these.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import product
from typing import Final, Literal
from uuid import UUID

import pytest

from dispatcher.presence import Place
from dispatcher.watch import Suspect, Watch

TICK: Final = 0.5
BEAT: Final = 1.0
LOOK: Final = 1.0
GRACE: Final = 6.0
STALL: Final = 8.0
PATIENCE: Final = 2.5
"""A call that is not answered for so long ends, and its session with it."""
NEVER: Final = float("inf")
START: Final = 4.0
"""When the first outage begins; by then every judge has seen every beat move."""

PHASES: Final = (0.0, TICK)
IN_TIME: Final = (0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, GRACE - TICK)
"""How long after an outage a session may come back: from at once to the last tick of the grace period."""
TOO_LATE: Final = (GRACE + 0.5, GRACE + 1, GRACE + 1.5, GRACE + 2, GRACE + 3)


Kind = Literal["stopped", "frozen", "unwritable", "blocked"]


@dataclass(frozen=True)
class Outage:
    """From `start` to before `end` the database answers nobody; where it was stopped, no session outlives it.

    Or it answers, but writes nothing: beats fail and cost their session ("unwritable"), or wait ("blocked").
    """

    kind: Kind
    start: float
    end: float

    def covers(self, now: float) -> bool:
        return self.start <= now < self.end

    @property
    def answers(self) -> bool:
        return self.kind in {"unwritable", "blocked"}


@dataclass
class Dispatcher:
    """One that beats while it lives and has a session."""

    next_beat: float
    returns: float = 0.0
    """So long after an outage that broke its session the next one is there."""
    dies: float = NEVER
    freezes: bool = False
    """Then it does not die but freeze, and its session stays for as long as the server keeps it."""
    cut: tuple[float, float] = (NEVER, NEVER)
    """When it alone cannot reach the database."""
    freed: float = NEVER
    """When the server notices that."""
    beat: int = 0
    locked: bool = True
    back_at: float | None = None
    """When its session comes back; None while it has one."""

    def step(self, now: float, outages: list[Outage]) -> None:
        """Do what this dispatcher does in one tick, and the server with its session."""
        outage = next((each for each in outages if each.covers(now)), None)
        is_dead = now >= self.dies
        if outage is not None:
            fails = self.next_beat <= now and (outage.answers or outage.end - self.next_beat > PATIENCE)
            if outage.kind == "stopped" or (outage.kind == "unwritable" and fails):
                self.locked = False
            if outage.answers and is_dead:
                self.locked = self.locked and self.freezes
            if outage.kind == "stopped" or fails:
                self.back_at = outage.end + self.returns
            if self.next_beat <= now:
                self.next_beat = outage.end
        elif is_dead:
            self.locked = self.locked and self.freezes
        elif self.cut[0] <= now < self.cut[1]:
            self.locked = self.locked and now < self.freed
            self.back_at = self.cut[1]
        elif self.back_at is not None and now < self.back_at:
            # The server has found its client gone, or the client has given up.
            self.locked = False
        elif now >= self.next_beat or self.back_at is not None:
            self.back_at, self.locked = None, True
            self.beat, self.next_beat = self.beat + 1, now + BEAT


class World:
    """What looks can see, at each tick: nobody's beat or lock depends on a judge, as long as it is not condemned."""

    def __init__(self, outages: list[Outage], dispatchers: list[Dispatcher], until: float) -> None:
        self.outages = outages
        self.dispatchers = dispatchers
        self.ticks = int(until / TICK) + 1
        self.seen = [self._look()]
        """What is seen before each tick, and after the last."""
        for tick in range(self.ticks):
            for dispatcher in dispatchers:
                dispatcher.step(tick * TICK, outages)
            self.seen.append(self._look())

    def _look(self) -> list[Suspect]:
        return [
            Suspect(UUID(int=number), each.beat, "there", number, Place("there", "there"), each.locked)
            for number, each in enumerate(self.dispatchers)
        ]


@dataclass
class Judge:
    """A real watch, and a session that comes back so long after an outage that broke it.

    While it is frozen it does nothing; what it has proven in the tick before, it acts upon when it wakes.
    """

    next_look: float
    returns: float = 0.0
    frozen: tuple[float, float] = (NEVER, NEVER)
    is_first: bool = False
    """Does it look before the others move, in each tick?"""
    ran_at: float = 0.0
    attending_since: float | None = 0.0
    proven: list[Suspect] = field(default_factory=list)
    condemned: dict[int, float] = field(default_factory=dict)
    """When each was condemned, by its number."""
    watch: Watch = field(
        default_factory=lambda: Watch(
            Place("here", "here"), *(timedelta(seconds=each) for each in (GRACE, STALL, BEAT))
        )
    )

    def __post_init__(self) -> None:
        # It beats when it looks.
        self.phase = self.next_look

    def judges(self, world: World) -> dict[int, float]:
        """Judge a world to its end; return whom it condemned, and when."""
        for tick in range(world.ticks):
            now = tick * TICK
            if not self.frozen[0] <= now < self.frozen[1]:
                self._step(now, world.outages, world.seen[tick if self.is_first else tick + 1])
        return self.condemned

    def _step(self, now: float, outages: list[Outage], seen: list[Suspect]) -> None:
        for outage in outages:
            stopped = outage.kind == "stopped" and self.ran_at < outage.start <= now
            fails_at = outage.start + (self.phase - outage.start) % BEAT
            if outage.answers and fails_at < outage.end and fails_at <= now:
                self.attending_since = None if now < outage.end + self.returns else outage.end
            stranded = outage.kind == "frozen" and outage.covers(now) and outage.end - self.next_look > PATIENCE
            if stopped or (stranded and self.next_look <= now):
                self.watch.forget()
                self.proven, self.next_look = [], outage.end + self.returns
        self.ran_at = now
        if any(outage.covers(now) and not outage.answers for outage in outages):
            return
        self._condemn(now, seen)
        if now >= self.next_look:
            self.next_look = now + LOOK
            living = [suspect for suspect in seen if suspect.pid not in self.condemned]
            self.proven = [
                suspect for suspect, _ in self.watch.judge(living, now, self.attending_since, lambda _: False)
            ]
            if not self.frozen[0] <= now + TICK < self.frozen[1]:
                self._condemn(now, seen)

    def _condemn(self, now: float, seen: list[Suspect]) -> None:
        for suspect in self.proven:
            if seen[suspect.pid].beat == suspect.beat:
                self.condemned[suspect.pid] = now
        self.proven = []


def judges(end: float) -> Iterator[Judge]:
    """Yield judges that come back at any time after `end`, some frozen around it, each in both orders."""
    freezes = (
        (NEVER, NEVER),
        (START - 0.5, START + 1.5),
        (end - 1, end + 1.5),
        (end + 3, end + 6),
        (end + 6.5, end + 9),
    )
    for phase, returns, frozen, is_first in product(PHASES, (0.0, 1.0, 5.5), freezes, (True, False)):
        yield Judge(phase, returns, frozen, is_first)


def survivors() -> list[Dispatcher]:
    """Dispatchers that are back within the grace period, at every moment of it."""
    return [Dispatcher(phase, returns) for phase, returns in product(PHASES, IN_TIME)]


LENGTHS: Final = (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 6.0, STALL, STALL + 1, 2 * STALL)


@pytest.mark.parametrize("kind", ["stopped", "frozen", "unwritable", "blocked"])
def test_nobody_who_is_back_within_the_grace_period_is_condemned_and_whoever_is_gone_is_in_time(
    kind: Kind,
) -> None:
    spared = len(survivors())
    for length, phase in product(LENGTHS, PHASES):
        end = START + phase + length
        deaths = (2.0, START, START + 1, end - 0.5, end, end + 1)
        gone = [Dispatcher(0.0, 1.0, dies, freezes) for dies, freezes in product(deaths, (True, False))]
        late = [Dispatcher(0.0, returns) for returns in TOO_LATE]
        world = World([Outage(kind, START + phase, end)], [*survivors(), *gone, *late], end + 9 + STALL + 3)
        for judge in judges(end):
            condemned = judge.judges(world)

            assert [number for number in condemned if number < spared] == [], (length, phase, judge)
            watches_from = max(end + judge.returns, judge.frozen[1] if judge.frozen[1] != NEVER else 0)
            for number, each in enumerate(gone, spared):
                limit = max(watches_from, each.dies) + (STALL if each.freezes else GRACE) + 2
                assert condemned.get(number, NEVER) <= limit, (length, phase, judge, each)
            for number, each in enumerate(late, spared + len(gone)):
                assert condemned.get(number, 0) <= end + each.returns, "it was back by then"


@pytest.mark.parametrize("kind", ["stopped", "frozen"])
def test_an_outage_that_follows_on_another_gives_everybody_the_grace_period_anew(
    kind: Kind,
) -> None:
    # One frozen for less than two beats no judge can notice: to those who were away before, it is time given.
    lengths = (1.0, 2.0, 4.0) if kind == "stopped" else (2.0, 4.0)
    for before, pause, length in product((1.0, STALL + 1), (0.5, 2.0, 3.5, 5.5), lengths):
        again = START + before + pause
        end = again + length
        outages = [Outage("stopped", START, START + before), Outage(kind, again, end)]
        world = World(outages, survivors(), end + GRACE + 6)
        for judge in judges(end):
            assert judge.judges(world) == {}, (outages, judge)


def test_one_that_is_cut_off_has_the_stall_limit_or_the_grace_period_from_when_the_server_notices() -> None:
    for noticed, is_first, look in product((0.5, 1.0, 2.0, 5.0, NEVER), (True, False), PHASES):
        cuts = [
            Dispatcher(phase, cut=(START, START + tick * TICK), freed=START + noticed)
            for phase, tick in product(PHASES, range(1, int(3 * STALL / TICK)))
        ]
        world = World([], cuts, START + 3 * STALL)

        condemned = Judge(look, is_first=is_first).judges(world)

        # Unnoticed until the stall limit, or noticed so late that the grace period goes beyond it.
        given = noticed + GRACE if noticed < STALL else STALL
        for number, each in enumerate(cuts):
            away = each.cut[1] - START
            if away <= given - BEAT:
                assert number not in condemned, (noticed, is_first, each)
            if away >= given + 2:
                assert condemned[number] <= START + given + 2, (noticed, is_first, each)
