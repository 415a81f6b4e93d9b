-- The part of submit_tasks that is for batches in which somebody brought an idempotency key; called by it alone, its
-- parameters and rows are told there. p_room is for how many new tasks the queue has room.
-- Somebody's own transaction may commit a key after it was looked for: the insert passes such a row over, and it answers.
create or replace function tally.submit_keyed_tasks(
    p_queue text,
    p_tokens uuid[],
    p_kinds text[],
    p_inputs jsonb[],
    p_keys text[],
    p_key_wait_ms integer,
    p_notify boolean,
    p_whole boolean,
    p_room integer,
    p_retry_of bigint[]
)
returns table (token uuid, verdict text, id bigint, row_token uuid, document text)
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_lock_timeout constant text := current_setting('lock_timeout');
    v_new boolean[];
    v_lowest bigint;
    v_ids bigint[];
    v_tokens uuid[];
    v_documents text[];
begin
    with sought as (
        select
            submitted.ordinal,
            submitted.key is null
                -- The first of its key. By a window: the planner takes an array for ten rows, and would join in a loop.
                or row_number() over (partition by submitted.key order by submitted.ordinal) = 1
                and not exists (select from tally.task where task.idempotency_key = submitted.key) as is_new
        from unnest(p_keys) with ordinality as submitted (key, ordinal)
    ),
    counted as (
        select
            sought.ordinal, sought.is_new,
            count(*) filter (where sought.is_new) over (order by sought.ordinal) as nth,
            count(*) filter (where sought.is_new) over () as all_new
        from sought
    )
    select
        array_agg(
            counted.is_new and counted.nth <= p_room and not (p_whole and counted.all_new > p_room)
            order by counted.ordinal
        )
    into v_new
    from counted;

    perform set_config('lock_timeout', p_key_wait_ms || 'ms', true);
    with admitted as (
        insert into tally.task (token, queue, kind, input, retry_of, idempotency_key, digest)
        select
            submitted.token, p_queue, submitted.kind, submitted.input, submitted.retry_of, submitted.key,
            case when submitted.key is not null then tally.submission_digest(submitted.kind, submitted.input) end
        from unnest(p_tokens, p_kinds, p_inputs, p_keys, p_retry_of, v_new)
            with ordinality as submitted (token, kind, input, key, retry_of, is_new, ordinal)
        where submitted.is_new
        order by submitted.ordinal
        on conflict (idempotency_key) where idempotency_key is not null do nothing
        returning
            task.id, task.token, task.position, case when not p_whole then tally.task_document(task) end as document
    )
    select array_agg(admitted.id), array_agg(admitted.token), array_agg(admitted.document), min(admitted.position)
    into v_ids, v_tokens, v_documents, v_lowest
    from admitted;
    -- COMMIT waits for the notification lock of the whole server, and may.
    perform set_config('lock_timeout', v_lock_timeout, true);

    if v_ids is null then
        -- A task that was there may not be on the standbys, nor on the disk yet: with something written, this commit
        -- waits for both. See settle_submissions.
        perform pg_logical_emit_message(true, 'tally', 'answered');
    elsif p_notify then
        perform tally.announce_tasks(p_queue, cardinality(v_ids), v_lowest);
    end if;

    return query
    select
        submitted.token,
        case
            when admitted.id is not null then 'admitted'
            when keyed.id is null then 'overloaded'
            when keyed.digest = tally.submission_digest(submitted.kind, submitted.input)
                and keyed.retry_of is not distinct from submitted.retry_of then 'admitted'
            else 'key reused'
        end,
        coalesce(admitted.id, keyed.id),
        coalesce(admitted.token, keyed.token),
        coalesce(
            admitted.document,
            case when keyed.id is not null and not p_whole then tally.task_document(keyed.whole) end
        )
    from unnest(p_tokens, p_kinds, p_inputs, p_keys, p_retry_of)
        with ordinality as submitted (token, kind, input, key, retry_of, ordinal)
    left join unnest(v_ids, v_tokens, v_documents) as admitted (id, token, document) using (token)
    -- A look into the index for each key, however few rows there were when this was planned.
    left join lateral (
        select task.id, task.token, task.digest, task.retry_of, task as whole
        from tally.task
        where task.idempotency_key = submitted.key
        limit 1
    ) as keyed on true
    order by submitted.ordinal;
end
$$;

-- What the submit_tasks of the version before calls, which may be under way while it is replaced.
create or replace function tally.submit_keyed_tasks(
    p_queue text,
    p_tokens uuid[],
    p_kinds text[],
    p_inputs jsonb[],
    p_keys text[],
    p_key_wait_ms integer,
    p_notify boolean,
    p_whole boolean,
    p_room integer
)
returns table (token uuid, verdict text, id bigint, row_token uuid, document text)
language sql
as $$
    select *
    from tally.submit_keyed_tasks(
        p_queue, p_tokens, p_kinds, p_inputs, p_keys, p_key_wait_ms, p_notify, p_whole, p_room, null
    )
$$;
