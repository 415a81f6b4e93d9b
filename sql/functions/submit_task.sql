-- Submit one task in the caller's own transaction, from any language: it is there exactly if that commits. Returns its id.
-- The queue is the one given, else the kind's, else 'default'. Refuses nothing for capacity and locks no queue; the open
-- tasks count towards max_open from the commit on.
-- Under an idempotency key that has a task already, returns that task. A key that another open transaction holds is
-- waited for, as long as the caller's lock_timeout lets it.
-- Wakes a dispatcher of the queue at the commit, unless told not to or the server's notification queue fills up: with
-- that full, a transaction that notifies cannot commit, and the dispatchers look anyhow.
-- Raises TL404 when there is no such queue, TL415 when the key's task was submitted with another kind or input, and what a
-- trigger or constraint says of the row: a priority is from -32768 to 32766, lowest first.
create or replace function tally.submit_task(
    p_kind text,
    p_input jsonb,
    p_queue text default null,
    p_idempotency_key text default null,
    p_priority integer default 0,
    p_notify boolean default true
)
returns bigint
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_queue constant text := coalesce(
        p_queue, (select kind.queue from tally.kind where kind.kind = p_kind), 'default'
    );
    v_id bigint;
    v_position bigint;
    v_is_same boolean;
begin
    if not exists (select from tally.queue where queue.name = v_queue) then
        raise exception 'there is no queue named %', quote_literal(v_queue) using errcode = 'TL404';
    end if;

    -- Again, where the key's task is removed between the two looks.
    for v_turn in 1 .. 3 loop
        insert into tally.task (token, queue, kind, input, priority, idempotency_key, digest)
        values (
            gen_random_uuid(), v_queue, p_kind, p_input, p_priority, p_idempotency_key,
            case when p_idempotency_key is not null then tally.submission_digest(p_kind, p_input) end
        )
        on conflict (idempotency_key) where idempotency_key is not null do nothing
        returning task.id, task.position into v_id, v_position;
        if found then
            if p_notify and pg_notification_queue_usage() < 0.5 then
                perform tally.announce_tasks(v_queue, 1, v_position);
            end if;
            return v_id;
        end if;

        select task.id, task.digest = tally.submission_digest(p_kind, p_input) and task.retry_of is null
        into v_id, v_is_same
        from tally.task
        where task.idempotency_key = p_idempotency_key;
        if v_is_same then
            -- It may not be on the standbys, nor on the disk yet: with something written, the commit waits for both.
            perform pg_logical_emit_message(true, 'tally', 'answered');
            return v_id;
        elsif found then
            raise exception 'the idempotency key belongs to task %, submitted with another kind or input', v_id
                using errcode = 'TL415';
        end if;
    end loop;
    raise exception 'a trigger of the database left the row out';
end
$$;
