"""The guards of the protocol: what each sees to. A model may be built without some of them."""

from typing import Final

GUARDS: Final = {
    "claim fence": "claim_tasks refuses numbers at or below the fence",
    "claim lock": "claim_tasks locks its dispatcher's row for key share, until its commit",
    "claim stopped": "claim_tasks refuses a stopped dispatcher",
    "claim queued": "claim_tasks takes QUEUED tasks only",
    "claim due": "claim_tasks takes none that waits for its time",
    "settle lock": "settle_claim locks the dispatcher's row for update, before it reads",
    "settle number": "settle_claim returns exactly the rows of that number",
    "settle fence": "settle_claim raises the fence",
    "fence never sinks": "settle_claim keeps the higher of fence and number",
    "leave lock": "leave_dispatcher locks the dispatcher's row for update, before it counts",
    "leave count": "leave_dispatcher refuses while a RUNNING row is left",
    "condemn lock": "condemn_dispatcher locks the dispatcher's row for update, before it reads",
    "condemn beat": "condemn_dispatcher refuses when the beat that was watched has moved",
    "refuse attempt": "refuse_claim names the attempt that the task had",
    "finish running": "finish_tasks writes RUNNING rows only",
    "finish holder": "finish_tasks names the dispatcher",
    "finish attempt": "finish_tasks names the attempt",
    "retry running": "retry_tasks writes RUNNING rows only",
    "retry holder": "retry_tasks names the dispatcher",
    "retry attempt": "retry_tasks names the attempt",
    "again left": "there is another attempt only while one is left",
    "again cancel": "there is no other attempt once a cancel was accepted",
    "again crashed": "there is another attempt after a crash only where the kind says so",
    "release due": "release_due_tasks releases only tasks whose time has come",
    "lose running": "fail_lost_tasks writes RUNNING rows only",
    "lose holder": "fail_lost_tasks names the dispatcher",
    "lose attempt": "fail_lost_tasks names the attempt",
    "recover stopped": "recover_tasks refuses while the holder is not stopped",
    "cancel open": "cancel_task refuses a terminal task",
    "one at a time": "no claim is made while one is unsettled",
    "sweep looks": "rows under its id that a dispatcher does not hold are looked for",
    "sweep settled": "lost tasks are looked for with no claim unsettled",
    "sweep own": "only rows under the dispatcher's own id are looked at",
    "sweep held": "what the dispatcher holds is not lost",
    "slots once": "a claim that is held already is not begun again",
    "slots by attempt": "what a dispatcher holds is told apart by its attempt",
    "loop releases": "tasks whose time has come are looked for",
    "begin fresh": "a body that waited for half the grace period begins only after its row was read again",
    "condemned is silent": "a condemned dispatcher begins and writes nothing more",
    "drain settles": "an unsettled claim counts as work for the drain",
    "drain waits": "a dispatcher leaves only when every slot is free",
    "judge looks": "a judge looks for the dead, and for what the stopped still hold",
    "judge stopped": "a judge recovers only after it has read that the holder is stopped",
}


class Guarded:
    """Something that is built with every guard, or without some."""

    def __init__(self, without: frozenset[str]) -> None:
        unknown = without - GUARDS.keys()
        if unknown:
            raise ValueError(f"no such guards: {sorted(unknown)}")
        self._without = without

    def has(self, guard: str) -> bool:
        return guard not in self._without
