"""How long a request may take, and the claim that none took longer."""

from collections.abc import Iterable
from typing import Final

from evidence.record import Exchange
from evidence.step import Claim, within

DEADLINE_SECONDS: Final = 2.5
"""The service's own, from when a request thread has the request."""
SLACK_SECONDS: Final = 0.7
"""For a busy machine: from the client's first packet to a request thread, and back."""
AT_ONCE_SECONDS: Final = 0.5


def in_time(answers: Iterable[Exchange]) -> Claim:
    """Claim that each was answered by its deadline."""
    longest = max(each.seconds for each in answers)
    most = DEADLINE_SECONDS + SLACK_SECONDS
    return within(f"each within {DEADLINE_SECONDS} s, and {SLACK_SECONDS} to and fro", longest, most)
