"""A claim in a slot, from the claim to the acknowledged outcome."""

from dispatcher.context import Cancel
from dispatcher.messages import Claim, Outcome


class Held:
    """What its slot knows of a claim; written with the lock of the slots held."""

    __slots__ = ("began", "cancel", "claim", "ended", "outcome", "thread")

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.cancel = Cancel()
        self.began = False
        self.thread: int | None = None
        """Where its body runs, of the slots that are threads."""
        self.outcome: Outcome | None = None
        self.ended = False
        """Its body has ended, or was given up."""

    def __repr__(self) -> str:
        return f"<Held task {self.claim.id}, attempt {self.claim.attempt}, began={self.began} ended={self.ended}>"
