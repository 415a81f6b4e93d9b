-- The tables, constraints, indexes and the view. Locks nothing that exists: everything here is new.

create sequence tally.task_position as bigint;

create table tally.queue (
    name text primary key,
    max_open integer default 10000,
    paused_at timestamptz,
    constraint queue_name_is_short check (octet_length(name) between 1 and 255),
    constraint max_open_leaves_room_for_one check (max_open >= 1)
);

insert into tally.queue (name) values ('default');

create table tally.dispatcher (
    id uuid primary key,
    host text not null,
    boot_id text not null,
    network_namespace text not null,
    pid integer not null,
    slots integer not null,
    claim_fence bigint not null default 0,
    started_at timestamptz not null default clock_timestamp(),
    beat bigint not null default 0,
    beaten_at timestamptz not null default clock_timestamp(),
    stopped_at timestamptz,
    stopped_why text,
    stopped_proof text,
    trouble text,
    constraint slots_are_positive check (slots >= 1),
    constraint stopped_why_is_known check (stopped_why in ('left', 'exited', 'lost')),
    constraint stopped_why_set_exactly_when_stopped check ((stopped_why is null) = (stopped_at is null)),
    constraint proof_set_exactly_when_condemned
        check ((stopped_proof is not null) = (coalesce(stopped_why, 'left') <> 'left'))
);

create table tally.task (
    id bigint generated always as identity primary key,
    token uuid not null,
    queue text not null,
    kind text not null,
    input jsonb not null,
    priority smallint not null default 0,
    position bigint not null default nextval('tally.task_position'),
    state text not null default 'QUEUED',
    attempt integer not null default 0,
    claimed_by uuid,
    claim_number bigint,
    cancel_requested_at timestamptz,
    result jsonb,
    error jsonb,
    created_at timestamptz not null default clock_timestamp(),
    started_at timestamptz,
    finished_at timestamptz,
    idempotency_key text,
    digest bytea,
    constraint state_is_known check (state in ('QUEUED', 'RUNNING', 'SUCCEEDED', 'FAILED', 'CANCELED')),
    constraint kind_is_short check (octet_length(kind) between 1 and 255),
    constraint input_is_an_object check (jsonb_typeof(input) = 'object'),
    constraint idempotency_key_is_short check (octet_length(idempotency_key) between 1 and 255),
    constraint digest_set_exactly_with_a_key check ((digest is null) = (idempotency_key is null)),
    constraint claim_is_whole_or_absent check ((claimed_by is null) = (claim_number is null)),
    constraint queued_has_no_claim
        check (state <> 'QUEUED' or (claimed_by is null and cancel_requested_at is null)),
    constraint running_has_a_claim
        check (state <> 'RUNNING' or (claimed_by is not null and attempt >= 1 and started_at is not null)),
    constraint finished_at_set_exactly_when_terminal
        check ((finished_at is not null) = (state in ('SUCCEEDED', 'FAILED', 'CANCELED'))),
    constraint result_set_exactly_when_succeeded check ((result is not null) = (state = 'SUCCEEDED')),
    constraint error_set_exactly_when_failed_or_canceled
        check ((error is not null) = (state in ('FAILED', 'CANCELED'))),
    constraint error_names_its_reason
        check (error is null or coalesce(jsonb_typeof(error -> 'reason'), 'none') = 'string'),
    constraint succeeded_was_not_canceled check (state <> 'SUCCEEDED' or cancel_requested_at is null),
    constraint failed_was_not_canceled check (state <> 'FAILED' or cancel_requested_at is null)
);

create index task_queued on tally.task (queue, priority, position) where state = 'QUEUED';
create index task_open on tally.task (queue) where state in ('QUEUED', 'RUNNING');
create index task_running on tally.task (claimed_by) where state = 'RUNNING';
create unique index task_idempotency_key on tally.task (idempotency_key) where idempotency_key is not null;

-- For reconciling by eye: what the built-in kind counted, zeros unless it succeeded; null where the stored result
-- is not a count, so that no row makes the view fail.
create view tally.text_stats as
select
    task.id,
    task.state,
    case
        when task.state <> 'SUCCEEDED' then 0
        else substring(task.result ->> 'words' from '^[0-9]{1,18}$')::bigint
    end as words,
    case
        when task.state <> 'SUCCEEDED' then 0
        else substring(task.result ->> 'bytes' from '^[0-9]{1,18}$')::bigint
    end as bytes,
    case
        when task.state <> 'SUCCEEDED' then 0
        else substring(task.result ->> 'runes' from '^[0-9]{1,18}$')::bigint
    end as runes,
    task.cancel_requested_at is not null as cancel_requested
from tally.task
where task.kind = 'text.stats';
