-- Admit a batch of submissions to one queue: each becomes a QUEUED row, or is refused because the queue is full.
-- Called by the web process's admission thread, in a transaction that it commits only after reading the answer.
-- Returns one row per submission, in the order given: its token, and the task's document, null where the
-- open count had reached max_open (overloaded: no row).
-- Locks the queue's advisory lock until the end of the transaction, so the open count is exact over all
-- web processes. Notifies tally_work once, with the queue and the lowest new position.
-- Raises TL404 when there is no such queue; whatever a trigger or constraint says of a row fails the whole batch.
create or replace function tally.submit_tasks(
    p_queue text,
    p_tokens uuid[],
    p_kinds text[],
    p_inputs jsonb[],
    p_notify boolean default true
)
returns table (token uuid, document text)
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
as $$
declare
    v_max_open integer;
    v_room bigint;
    v_lowest bigint;
    v_tokens uuid[];
    v_documents text[];
begin
    perform pg_advisory_xact_lock(tally.queue_lock_key(p_queue));

    select queue.max_open into v_max_open from tally.queue where queue.name = p_queue;
    if not found then
        raise exception 'there is no queue named %', quote_literal(p_queue) using errcode = 'TL404';
    end if;
    v_room := cardinality(p_tokens);
    if v_max_open is not null then
        v_room := least(v_room, v_max_open - tally.open_count(p_queue));
    end if;

    with admitted as (
        insert into tally.task (token, queue, kind, input)
        select submitted.token, p_queue, submitted.kind, submitted.input
        from unnest(p_tokens, p_kinds, p_inputs)
            with ordinality as submitted (token, kind, input, ordinal)
        where submitted.ordinal <= v_room
        order by submitted.ordinal
        returning task.token, task.position, tally.task_document(task) as document
    )
    select array_agg(admitted.token), array_agg(admitted.document), min(admitted.position)
    into v_tokens, v_documents, v_lowest
    from admitted;

    if v_lowest is not null and p_notify then
        perform pg_notify('tally_work', json_build_object('queue', p_queue, 'position', v_lowest)::text);
    end if;

    return query
    select submitted.token, admitted.document
    from unnest(p_tokens) with ordinality as submitted (token, ordinal)
    left join unnest(v_tokens, v_documents) as admitted (token, document) using (token)
    order by submitted.ordinal;
end
$$;
