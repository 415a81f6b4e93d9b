"""The real functions answer and write what the model says, step by step; without one of their guards they do not."""

import re
from typing import Final

import pytest
from psycopg.errors import CheckViolation

from sql import statement
from tests.model.removals import NEEDED, REPEATING, RETRYING, Bounds
from tests.model.routes import Route, Ways
from tests.model.steps import Dispatchers
from tests.model.walk import Diverged, Walker
from tests.support.database import Database

pytestmark = pytest.mark.model

WALKS: Final = 150
FEWEST_STEPS: Final = 1500

REMOVALS: Final = {
    "claim fence": ("claim_tasks", "p_number <= v_fence", "false"),
    "claim lock": ("claim_tasks", "for key share", ""),
    "claim stopped": ("claim_tasks", "not found or v_stopped_at is not null", "not found"),
    "settle lock": ("settle_claim", "for update", "for key share"),
    "settle fence": ("settle_claim", "greatest(dispatcher.claim_fence, p_number)", "dispatcher.claim_fence"),
    "settle number": ("settle_claim", "and task.claim_number = p_number", ""),
    "fence never sinks": ("settle_claim", "greatest(dispatcher.claim_fence, p_number)", "p_number"),
    "leave count": ("leave_dispatcher", "v_left > 0", "false"),
    "condemn lock": ("condemn_dispatcher", "for update", "for key share"),
    "condemn beat": ("condemn_dispatcher", "v_beat <> p_beat", "false"),
    "finish running": ("finish_tasks", "locked.mine and locked.is_running", "locked.mine"),
    "finish holder": ("finish_tasks", "task.claimed_by is not distinct from p_dispatcher and", ""),
    "lose running": ("fail_lost_tasks", "and task.state = 'RUNNING'", ""),
    "finish attempt": ("finish_tasks", " and task.attempt = given.attempt as mine", " as mine"),
    "retry holder": ("requeue_tasks", "task.claimed_by is not distinct from p_dispatcher", "true"),
    "retry attempt": ("requeue_tasks", "and task.attempt = given.attempt", ""),
    "refuse attempt": ("refuse_claim", "or v_attempt <> p_attempt", ""),
    "again left": ("requeue_tasks", "and held.attempt < kind.max_attempts", ""),
    "again crashed": ("requeue_tasks", "and (kind.on_crash = 'retry' or not p_crashed)", ""),
    "release due": ("release_due_tasks", "and task.position <= v_now", ""),
    "lose attempt": ("fail_lost_tasks", "and task.attempt = lost.attempt", ""),
}
"""How a guard is taken out of the real function."""

CONSTRAINTS: Final = {
    "claim due": (
        ("claim_tasks", "lead(start.priority, 1, 32767)", "lead(start.priority, 1, 32768)"),
        "due_at_set_exactly_while_queued_at_the_last_priority",
    ),
    "retry running": (
        ("requeue_tasks", "and task.state = 'RUNNING'", ""),
        "error_set_exactly_when_failed_or_canceled",
    ),
    "again cancel": (
        ("requeue_tasks", "and task.cancel_requested_at is null as", "as"),
        "queued_has_no_claim",
    ),
}
"""How a guard is taken out behind which a constraint stands."""


@pytest.fixture(scope="module")
def routes() -> list[tuple[Ways, Route]]:
    """Return a way to every kind of step: of two dispatchers, and what only a failover brings about."""
    one, two = Ways(1), Ways(2)
    found = [
        (one, route) for bounds in (Bounds(1, 1, failovers=1), RETRYING, REPEATING) for route in one.routes(bounds)
    ]
    found += [(two, route) for route in two.routes(Bounds(2, 2))]
    return list({route.goal: (ways, route) for ways, route in found}.values())


def test_every_kind_of_step_is_answered_alike(database: Database, routes: list[tuple[Ways, Route]]) -> None:
    walker = Walker(database)

    for ways, route in routes:
        walker.follow(ways, route)

    goals = {route.goal for _, route in routes}
    print(f"{len(goals)} kinds of steps, {walker.kinds.total()} steps")
    assert walker.kinds.keys() >= goals
    assert len(goals) > 100


def test_random_walks_keep_the_model_and_the_functions_in_step(database: Database) -> None:
    walker, ways = Walker(database), Ways(2)

    for seed in range(WALKS):
        walker.wander(ways, seed)

    print(f"seeds 0 to {WALKS - 1}: {walker.kinds.total()} steps of {len(walker.kinds)} kinds")
    assert walker.kinds.total() > FEWEST_STEPS
    assert sum(count for kind, count in walker.kinds.items() if kind.after) > 10


@pytest.mark.parametrize("guard", REMOVALS)
def test_the_function_without_a_guard_is_in_step_with_the_model_without_it_only(database: Database, guard: str) -> None:
    bounds, promise = NEEDED[guard]
    found = bounds.search(guard)
    first = bounds.first(Dispatchers(bounds.at_once))
    walker = Walker(database)

    with pytest.raises(Diverged) as diverged:
        walker.retrace(first, found.trace)
    remove(database, *REMOVALS[guard])
    walker.retrace(first, found.trace)

    print(f"{promise}, by the real functions without '{guard}'. With it:\n{diverged.value}")


@pytest.mark.parametrize("guard", CONSTRAINTS)
def test_a_constraint_refuses_what_the_function_would_do_without_a_guard(database: Database, guard: str) -> None:
    removal, constraint = CONSTRAINTS[guard]
    bounds, _ = NEEDED[guard]
    found = bounds.search(guard)
    remove(database, *removal)

    with pytest.raises(Diverged) as diverged:
        Walker(database).retrace(bounds.first(Dispatchers(bounds.at_once)), found.trace)

    print(f"without '{guard}':\n{diverged.value}")
    assert isinstance(diverged.value.__cause__, CheckViolation)
    assert diverged.value.__cause__.diag.constraint_name == constraint


def remove(database: Database, function: str, guard: str, instead: str) -> None:
    """Put a function into this test's database that lacks a guard."""
    text = re.sub("^--.*\n", "", statement(f"functions/{function}"), flags=re.MULTILINE)
    assert text.count(guard) == 1, f"{function} has no such guard any more, or several"
    database.execute(text.replace(guard, instead))
