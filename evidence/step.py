"""What a step is: something done to the service, and what must be seen in its files afterwards."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from evidence.record import Record

if TYPE_CHECKING:
    # A stage drives the real programs and needs the driver; checking does not.
    from evidence.stage import Stage


@dataclass(frozen=True)
class Claim:
    """One thing that must be so, what was seen, and whether that is it."""

    says: str
    seen: Any
    passed: bool


def equal(says: str, seen: object, expected: object) -> Claim:
    return Claim(says, seen, seen == expected)


def within(says: str, seconds: float, most: float, least: float = 0) -> Claim:
    """Claim a duration; the sentence names the limit too."""
    return Claim(says, round(seconds, 3), least <= seconds <= most)


Acts = Callable[["Stage"], None]
Claims = Callable[[Record], Iterable[Claim]]


@dataclass
class Step:
    """A step of the evidence run.

    `alongside`: it spends its time waiting, so it runs beside the others, on a cluster of its own.
    `last`: it needs the machine for itself, for what it measures or for what it takes, so it runs after all others.
    `least_version`: it runs on a cluster of its own, of this PostgreSQL or a newer one.
    """

    name: str
    shows: str
    acts: Acts
    alongside: bool = False
    last: bool = False
    least_version: int = 0
    claims: Claims = field(default=lambda _: ())

    def must(self, claims: Claims) -> Claims:
        """Declare what must be seen: a function of the step's files and of nothing else."""
        self.claims = claims
        return claims


STEPS: Final[dict[str, Step]] = {}
"""Every step declared so far, by name."""


def step(
    name: str, shows: str, *, alongside: bool = False, last: bool = False, least_version: int = 0
) -> Callable[[Acts], Step]:
    """Declare the decorated function as what a step does. `shows` is its line in the summary."""

    def declare(acts: Acts) -> Step:
        if name in STEPS:
            raise ValueError(f"there are two steps {name}")
        STEPS[name] = Step(name, shows, acts, alongside or least_version > 0, last, least_version)
        return STEPS[name]

    return declare
