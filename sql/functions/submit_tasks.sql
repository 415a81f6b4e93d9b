-- Admit a batch of submissions to one queue: each becomes a QUEUED row, or is refused because the queue is full.
-- Called by the web process, in a transaction that it commits only after reading the answer.
-- Returns one row per submission, in the order given: its token, a verdict, and the task that answers it.
--   admitted    the task's row is there: made now, or by an earlier submission under the same idempotency key
--   key reused  the key's task was submitted with another kind, input or retry_of; id and row_token are that task's
--   overloaded  the open count had reached max_open; no task
-- `row_token` is the token in the task's row, which is another's where an earlier submission made it. `revision` is the
-- highest of the kinds as this transaction sees them, 0 where none are published: read here, where the plan is kept.
-- p_keys holds null where a submission has no key. Equal keys are one submission, and a key whose row is there
-- needs no room. With p_whole, where there is no room for every new task none is made, and no document is put together.
-- p_retry_of holds the task that a submission repeats by hand, and null where it repeats none; null: none of them does.
-- Locks the queue's advisory lock until the end of the transaction, so that no two web processes take the same room
-- (room_in_queue). A key that another open transaction holds is waited for as long as p_key_wait_ms; then the
-- batch fails with lock_not_available. Wakes as many waiting dispatchers of the queue as it made tasks; where none is
-- known to wait, all (announce_tasks).
-- Raises TL404 when there is no such queue; whatever a trigger or constraint says of a row fails the whole batch.
create or replace function tally.submit_tasks(
    p_queue text,
    p_tokens uuid[],
    p_kinds text[],
    p_inputs jsonb[],
    p_keys text[],
    p_key_wait_ms integer,
    p_notify boolean,
    p_whole boolean,
    p_retry_of bigint[]
)
returns table (token uuid, verdict text, id bigint, row_token uuid, document text, revision bigint)
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_wanted constant integer := cardinality(p_tokens);
    v_room integer;
    v_made integer;
    v_next bigint;
    v_revision bigint;
begin
    perform pg_advisory_xact_lock(tally.queue_lock_key(p_queue));
    v_room := tally.room_in_queue(p_queue, v_wanted);
    select
        drawn.last_value + drawn.is_called::integer,
        coalesce((select max(kind.revision) from tally.kind), 0)
    into v_next, v_revision
    from tally.task_position as drawn;

    if array_remove(p_keys, null) <> '{}' then
        return query
        select keyed.*, v_revision
        from tally.submit_keyed_tasks(
            p_queue, p_tokens, p_kinds, p_inputs, p_keys, p_key_wait_ms, p_notify, p_whole, v_room, p_retry_of
        ) as keyed;
        return;
    end if;
    if p_whole and v_room < v_wanted then
        v_room := 0;
    end if;

    return query
    insert into tally.task (token, queue, kind, input, retry_of)
    select submitted.token, p_queue, submitted.kind, submitted.input, submitted.retry_of
    from unnest(p_tokens, p_kinds, p_inputs, p_retry_of) as submitted (token, kind, input, retry_of)
    limit v_room
    returning
        task.token, 'admitted', task.id, task.token, case when not p_whole then tally.task_document(task) end,
        v_revision;
    get diagnostics v_made = row_count;
    if v_made < v_room then
        -- The answers are told apart by their order.
        raise exception 'a trigger of the database left % of % rows out', v_room - v_made, v_room;
    end if;
    return query
    select refused.token, 'overloaded', null::bigint, null::uuid, null::text, v_revision
    from unnest(p_tokens[v_room + 1:]) as refused (token);

    if v_room > 0 and p_notify then
        perform tally.announce_tasks(p_queue, v_room, v_next);
    end if;
end
$$;

-- What programs that know no later migration than 0007 call, until a later one drops it.
create or replace function tally.submit_tasks(
    p_queue text,
    p_tokens uuid[],
    p_kinds text[],
    p_inputs jsonb[],
    p_keys text[],
    p_key_wait_ms integer,
    p_notify boolean,
    p_whole boolean
)
returns table (token uuid, verdict text, id bigint, row_token uuid, document text)
language sql
as $$
    select made.token, made.verdict, made.id, made.row_token, made.document
    from tally.submit_tasks(
        p_queue, p_tokens, p_kinds, p_inputs, p_keys, p_key_wait_ms, p_notify, p_whole, null
    ) as made
$$;

-- What programs that know no later migration than 0004 call, until a later one drops it.
create or replace function tally.submit_tasks(
    p_queue text,
    p_tokens uuid[],
    p_kinds text[],
    p_inputs jsonb[],
    p_keys text[],
    p_key_wait_ms integer,
    p_notify boolean default true
)
returns table (token uuid, verdict text, id bigint, row_token uuid, document text)
language sql
as $$
    select made.token, made.verdict, made.id, made.row_token, made.document
    from tally.submit_tasks(
        p_queue, p_tokens, p_kinds, p_inputs, p_keys, p_key_wait_ms, p_notify, false, null
    ) as made
$$;
