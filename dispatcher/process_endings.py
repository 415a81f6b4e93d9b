"""What a body in a child ended in: by the child's answer, by its death, or by a cancel that came before it began."""

from collections.abc import Mapping

from dispatcher import wire
from dispatcher.children import Body, Child
from dispatcher.endings import Limits, crashed, failed, out_of_time
from dispatcher.kinds import Task
from dispatcher.messages import Claim, Ending, Outcome


class ProcessEndings:
    """A time limit that has passed says it all, whatever the body then did; how it did end is in the detail."""

    def __init__(self, kinds: Mapping[str, Task], limits: Limits) -> None:
        self._kinds = kinds
        self._limits = limits

    def answered(self, body: Body, ended: wire.Ended) -> Outcome:
        claim, ladder = body.held.claim, body.ladder
        ending = ladder.ending(ended.ending)
        if ladder.timed_out:
            return out_of_time(claim, self._kinds[claim.kind], ending, self._limits)
        return Outcome(claim, ended.state, ended.result, ended.error, ending, ended.after_seconds)

    def died(self, body: Body, child: Child, status: int) -> Outcome:
        claim, ladder = body.held.claim, body.ladder
        task = self._kinds[claim.kind]
        ending = ladder.ending_by(status)
        if ladder.timed_out:
            return out_of_time(claim, task, ending, self._limits)
        if ending is not Ending.DIED:
            return failed(claim, "canceled", f"its body: {ending}", self._limits, ending)
        return crashed(claim, task, *child.crash(status), ending, self._limits)

    def not_begun(self, claim: Claim) -> Outcome:
        return failed(claim, "canceled before it began", None, self._limits, Ending.NOT_STARTED)
