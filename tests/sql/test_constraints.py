"""What must always hold is a constraint, named in words; each refuses what its name says."""

from collections.abc import Iterator

import pytest
from psycopg import errors

from tests.support.database import Database, cloned_database, drop
from tests.support.server import TestServer

ROW = {
    "token": "gen_random_uuid()",
    "queue": "'default'",
    "kind": "'echo'",
    "input": "'{}'",
}
CLAIM = {"claimed_by": "gen_random_uuid()", "claim_number": "1", "attempt": "1", "started_at": "now()"}
RUNNING = {"state": "'RUNNING'", **CLAIM}
SUCCEEDED = {"state": "'SUCCEEDED'", **CLAIM, "finished_at": "now()", "result": "'1'"}
FAILED = {"state": "'FAILED'", **CLAIM, "finished_at": "now()", "error": """'{"reason": "no"}'"""}
CANCELED = {**FAILED, "state": "'CANCELED'", "cancel_requested_at": "now()"}
DUE = {"priority": "32767", "due_at": "now()", "due_priority": "0"}
LONG = "repeat('é', 128)"

REFUSED = [
    ("state_is_known", {"state": "'BROKEN'"}),
    ("kind_is_short", {"kind": "''"}),
    ("kind_is_short", {"kind": LONG}),
    ("input_is_an_object", {"input": "'[]'"}),
    ("input_is_an_object", {"input": "'null'"}),
    ("idempotency_key_is_short", {"idempotency_key": "''", "digest": "'x'"}),
    ("idempotency_key_is_short", {"idempotency_key": LONG, "digest": "'x'"}),
    ("digest_set_exactly_with_a_key", {"idempotency_key": "'k'"}),
    ("digest_set_exactly_with_a_key", {"digest": "'x'"}),
    ("claim_is_whole_or_absent", {"claim_number": "1"}),
    ("claim_is_whole_or_absent", {**RUNNING, "claim_number": "null"}),
    ("queued_has_no_claim", CLAIM),
    ("queued_has_no_claim", {"cancel_requested_at": "now()"}),
    ("running_has_a_claim", {"state": "'RUNNING'"}),
    ("running_has_a_claim", {**RUNNING, "attempt": "0"}),
    ("running_has_a_claim", {**RUNNING, "started_at": "null"}),
    ("finished_at_set_exactly_when_terminal", {"finished_at": "now()"}),
    ("finished_at_set_exactly_when_terminal", {**RUNNING, "finished_at": "now()"}),
    ("finished_at_set_exactly_when_terminal", {**SUCCEEDED, "finished_at": "null"}),
    ("finished_at_set_exactly_when_terminal", {**CANCELED, "finished_at": "null"}),
    ("result_set_exactly_when_succeeded", {"result": "'1'"}),
    ("result_set_exactly_when_succeeded", {**SUCCEEDED, "result": "null"}),
    ("result_set_exactly_when_succeeded", {**CANCELED, "result": "'1'"}),
    ("error_set_exactly_when_failed_or_canceled", {**FAILED, "error": "null"}),
    ("error_set_exactly_when_failed_or_canceled", {**RUNNING, "error": """'{"reason": "no"}'"""}),
    ("error_names_its_reason", {**FAILED, "error": "'{}'"}),
    ("error_names_its_reason", {**FAILED, "error": """'{"reason": 7}'"""}),
    ("error_names_its_reason", {**FAILED, "error": "'null'"}),
    ("error_names_its_reason", {**FAILED, "error": "'[]'"}),
    ("succeeded_was_not_canceled", {**SUCCEEDED, "cancel_requested_at": "now()"}),
    ("failed_was_not_canceled", {**FAILED, "cancel_requested_at": "now()"}),
    ("attempts_are_a_list", {"attempts": "'{}'"}),
    ("due_at_set_exactly_with_due_priority", {"priority": "32767", "due_at": "now()"}),
    ("due_at_set_exactly_with_due_priority", {"due_priority": "0"}),
    ("due_at_set_exactly_while_queued_at_the_last_priority", {"priority": "32767"}),
    ("due_at_set_exactly_while_queued_at_the_last_priority", {"due_at": "now()", "due_priority": "0"}),
    ("due_at_set_exactly_while_queued_at_the_last_priority", {**RUNNING, **DUE}),
    ("due_at_set_exactly_while_queued_at_the_last_priority", {**CANCELED, **DUE}),
]

DISPATCHER = {
    "id": "gen_random_uuid()",
    "host": "'h'",
    "boot_id": "'b'",
    "network_namespace": "'n'",
    "pid": "1",
    "slots": "1",
}
LEFT = {"stopped_at": "now()", "stopped_why": "'left'"}

DISPATCHERS_REFUSED = [
    ("slots_are_positive", {"slots": "0"}),
    ("stopped_why_is_known", {**LEFT, "stopped_why": "'bored'", "stopped_proof": "'p'"}),
    ("stopped_why_set_exactly_when_stopped", {"stopped_at": "now()"}),
    ("stopped_why_set_exactly_when_stopped", {"stopped_why": "'left'"}),
    ("proof_set_exactly_when_condemned", {**LEFT, "stopped_proof": "'p'"}),
    ("proof_set_exactly_when_condemned", {**LEFT, "stopped_why": "'lost'"}),
    ("proof_set_exactly_when_condemned", {"stopped_proof": "'p'"}),
]

QUEUES_REFUSED = [
    ("queue_name_is_short", {"name": "''"}),
    ("queue_name_is_short", {"name": LONG}),
    ("max_open_leaves_room_for_one", {"name": "'q'", "max_open": "0"}),
]

KIND = {
    "kind": "'echo'",
    "queue": "'default'",
    "slot": "'thread'",
    "max_attempts": "1",
    "on_crash": "'fail'",
    "backoff_first_seconds": "1",
    "backoff_factor": "2",
    "backoff_cap_seconds": "600",
    "revision": "1",
    "published_by": "gen_random_uuid()",
}

KINDS_REFUSED = [
    ("kind_is_short", {"kind": "''"}),
    ("input_schema_is_an_object", {"input_schema": "'true'"}),
    ("slot_is_known", {"slot": "'fiber'"}),
    ("time_limit_is_positive", {"time_limit_seconds": "0"}),
    ("max_attempts_are_positive", {"max_attempts": "0"}),
    ("on_crash_is_known", {"on_crash": "'hope'"}),
    ("backoff_does_not_shrink", {"backoff_first_seconds": "-1"}),
    ("backoff_does_not_shrink", {"backoff_factor": "0.9"}),
    ("backoff_does_not_shrink", {"backoff_cap_seconds": "-1"}),
]


def insert(database: Database, table: str, values: dict[str, str]) -> None:
    database.execute(f"insert into tally.{table} ({', '.join(values)}) values ({', '.join(values.values())})")


def refused_by(database: Database, table: str, values: dict[str, str]) -> str | None:
    with pytest.raises(errors.CheckViolation) as caught:
        insert(database, table, values)
    return caught.value.diag.constraint_name


@pytest.fixture(scope="module")
def tables(server: TestServer) -> Iterator[Database]:
    """One database for the whole file: what is refused leaves nothing behind."""
    with cloned_database(server) as database:
        yield database
    drop(database)


@pytest.mark.parametrize(("name", "values"), REFUSED)
def test_a_task_is_refused(tables: Database, name: str, values: dict[str, str]) -> None:
    assert refused_by(tables, "task", {**ROW, **values}) == name


@pytest.mark.parametrize(("name", "values"), DISPATCHERS_REFUSED)
def test_a_dispatcher_is_refused(tables: Database, name: str, values: dict[str, str]) -> None:
    assert refused_by(tables, "dispatcher", {**DISPATCHER, **values}) == name


@pytest.mark.parametrize(("name", "values"), QUEUES_REFUSED)
def test_a_queue_is_refused(tables: Database, name: str, values: dict[str, str]) -> None:
    assert refused_by(tables, "queue", values) == name


@pytest.mark.parametrize(("name", "values"), KINDS_REFUSED)
def test_a_kind_is_refused(tables: Database, name: str, values: dict[str, str]) -> None:
    assert refused_by(tables, "kind", {**KIND, **values}) == name


@pytest.mark.parametrize("values", [{}, DUE, RUNNING, SUCCEEDED, FAILED, CANCELED], ids=str)
def test_what_the_transitions_write_is_taken(tables: Database, values: dict[str, str]) -> None:
    insert(tables, "task", {**ROW, **values})


def test_one_idempotency_key_is_one_task(tables: Database) -> None:
    keyed = {**ROW, "idempotency_key": "'once'", "digest": "'x'"}
    insert(tables, "task", keyed)

    with pytest.raises(errors.UniqueViolation):
        insert(tables, "task", keyed)


def test_a_migration_is_refused_that_serves_programs_later_than_itself(tables: Database) -> None:
    values = {"version": "99", "name": "'later'", "serves": "100"}

    assert refused_by(tables, "migration", values) == "serves_no_later_than_itself"


def test_every_check_is_tried_here(tables: Database) -> None:
    named = {
        name
        for (name,) in tables.rows(
            "select conname from pg_constraint where connamespace = 'tally'::regnamespace and contype = 'c'"
        )
    }

    tried = {name for name, _ in [*REFUSED, *DISPATCHERS_REFUSED, *QUEUES_REFUSED, *KINDS_REFUSED]}
    assert named == {*tried, "serves_no_later_than_itself"}


def test_nobody_but_their_owner_may_call_our_functions(tables: Database) -> None:
    open_to_all = tables.rows(
        "select proname from pg_proc where pronamespace = 'tally'::regnamespace"
        " and has_function_privilege('pg_monitor', oid, 'execute')"
    )

    assert open_to_all == []
