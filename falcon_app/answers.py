"""How a request's thread waits for what another decides: it may withdraw until that is taken, and never afterwards."""

from concurrent.futures import CancelledError, Future
from time import monotonic
from typing import Final, TypeVar

from falcon_app.batches import ANSWER_SECONDS
from falcon_app.settling import SETTLING_SECONDS
from sql.errors import DatabaseBusy, OutcomeUnknown

T = TypeVar("T")

WITHDRAWAL_SECONDS: Final = 0.5
"""What has less left to its deadline is not taken any more."""


def awaited(answer: "Future[T]", deadline: float) -> T:
    """Return the answer, or raise what it is; waits, at the longest, until the deadline.

    Raises `DatabaseBusy` where it was not taken in time, and `OutcomeUnknown` where it was taken and not decided.
    """
    try:
        return answer.result(max(0.0, deadline - WITHDRAWAL_SECONDS - monotonic()))
    except CancelledError:
        raise DatabaseBusy("the submission was not taken in time") from None
    except TimeoutError:
        if answer.cancel():
            raise DatabaseBusy("the submission was not taken in time") from None
    try:
        # It is being decided. A process that was frozen meanwhile has not lost the right to an answer.
        return answer.result(max(SETTLING_SECONDS, deadline - monotonic()) + ANSWER_SECONDS)
    except TimeoutError:
        raise OutcomeUnknown("admission did not answer in time", sqlstate="57014") from None
