-- Admit a batch of submissions to one queue: each becomes a QUEUED row, or is refused because the queue is full.
-- Called by the web process's admission thread, in a transaction that it commits only after reading the answer.
-- Returns one row per submission, in the order given: its token, a verdict, and the task that answers it.
--   admitted    the task's row is there: made now, or by an earlier submission under the same idempotency key
--   key reused  the key's task was submitted with another kind or input; id and row_token are that task's
--   overloaded  the open count had reached max_open; no task
-- `row_token` is the token in the task's row, which is another's where an earlier submission made it.
-- p_keys holds null where a submission has no key. Equal keys are one submission, and a key whose row is there
-- needs no room.
-- Locks the queue's advisory lock until the end of the transaction, so the open count is exact over all
-- web processes. A key that another open transaction holds is waited for as long as p_key_wait_ms; then the
-- batch fails with lock_not_available. Wakes as many waiting dispatchers of the queue as it made tasks; where none is
-- known to wait, all, on tally_work, with the queue and the lowest new position.
-- Raises TL404 when there is no such queue; whatever a trigger or constraint says of a row fails the whole batch.
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
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_with_keys constant boolean := array_remove(p_keys, null) <> '{}';
    v_lock_timeout constant text := current_setting('lock_timeout');
    v_max_open integer;
    v_new bigint[];
    v_lowest bigint;
    v_ids bigint[];
    v_tokens uuid[];
    v_documents text[];
begin
    perform pg_advisory_xact_lock(tally.queue_lock_key(p_queue));

    select queue.max_open into v_max_open from tally.queue where queue.name = p_queue;
    if not found then
        raise exception 'there is no queue named %', quote_literal(p_queue) using errcode = 'TL404';
    end if;

    select array_agg(submitted.ordinal order by submitted.ordinal)
    into v_new
    from unnest(p_keys) with ordinality as submitted (key, ordinal)
    where submitted.key is null
        or submitted.ordinal = array_position(p_keys, submitted.key)
        and not exists (select from tally.task where task.idempotency_key = submitted.key);
    if v_max_open is not null and v_new is not null then
        v_new := v_new[1:greatest(0, v_max_open - tally.open_count(p_queue))];
    end if;

    if v_with_keys then
        perform set_config('lock_timeout', p_key_wait_ms || 'ms', true);
    end if;
    with admitted as (
        insert into tally.task (token, queue, kind, input, idempotency_key, digest)
        select
            submitted.token, p_queue, submitted.kind, submitted.input, submitted.key,
            case when submitted.key is not null then tally.submission_digest(submitted.kind, submitted.input) end
        from unnest(p_tokens, p_kinds, p_inputs, p_keys)
            with ordinality as submitted (token, kind, input, key, ordinal)
        where submitted.ordinal = any (v_new)
        order by submitted.ordinal
        -- Somebody's own transaction may have committed the key since it was looked for.
        on conflict (idempotency_key) where idempotency_key is not null do nothing
        returning task.id, task.token, task.position, tally.task_document(task) as document
    )
    select array_agg(admitted.id), array_agg(admitted.token), array_agg(admitted.document), min(admitted.position)
    into v_ids, v_tokens, v_documents, v_lowest
    from admitted;
    -- COMMIT waits for the notification lock of the whole server, and may.
    perform set_config('lock_timeout', v_lock_timeout, true);

    if v_lowest is not null and p_notify and tally.wake_dispatchers(p_queue, cardinality(v_ids)) = 0 then
        perform pg_notify('tally_work', json_build_object('queue', p_queue, 'position', v_lowest)::text);
    end if;
    if v_ids is null and v_with_keys then
        -- A task that was there may not be on the standbys, nor on the disk yet: with something written, this commit
        -- waits for both. See settle_submissions.
        perform pg_logical_emit_message(true, 'tally', 'answered');
    end if;

    return query
    select
        submitted.token,
        case
            when admitted.id is not null then 'admitted'
            when keyed.id is null then 'overloaded'
            when keyed.digest = tally.submission_digest(submitted.kind, submitted.input) then 'admitted'
            else 'key reused'
        end,
        coalesce(admitted.id, keyed.id),
        coalesce(admitted.token, keyed.token),
        coalesce(admitted.document, tally.task_document(keyed))
    from unnest(p_tokens, p_kinds, p_inputs, p_keys)
        with ordinality as submitted (token, kind, input, key, ordinal)
    left join unnest(v_ids, v_tokens, v_documents) as admitted (id, token, document) using (token)
    left join tally.task as keyed on keyed.idempotency_key = submitted.key
    order by submitted.ordinal;
end
$$;
