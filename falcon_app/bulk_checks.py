"""A request's many tasks against the kinds: each fits its own, all go to one queue, or one of them is to blame."""

from falcon_app.errors import OtherQueue, UnfitInput
from falcon_app.kinds import Kinds
from falcon_app.payloads import OneOfMany
from sql.errors import TallyError


class TaskRefused(Exception):
    """The request is refused, and no row was made, because of one of its tasks: which, and why."""

    def __init__(self, index: int, error: TallyError) -> None:
        super().__init__(f"task {index}: {error}")
        self.index = index
        self.error = error


def checked(tasks: list[OneOfMany], kinds: Kinds) -> str:
    """Return the queue that a request's tasks go to, by these kinds. Raises `TaskRefused`: one does not fit, or in."""
    queue = kinds.queue(tasks[0]["kind"])
    for index, task in enumerate(tasks):
        try:
            kinds.check(task["kind"], task["input"])
        except UnfitInput as error:
            raise TaskRefused(index, error) from None
        if (other := kinds.queue(task["kind"])) != queue:
            reason = (
                f"expected the tasks of one request to go to one queue: {other!r} is not {queue!r}, the first one's"
            )
            raise TaskRefused(index, OtherQueue(reason))
    return queue
