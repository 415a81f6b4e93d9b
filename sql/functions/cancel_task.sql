-- Cancel one task: a QUEUED one ends CANCELED at once, a RUNNING one is asked to end and keeps its slot until
-- its body has. Asking again while RUNNING changes nothing and is answered alike. Returns the task's document.
-- Called by the web process. Locks the task's row. Notifies tally_cancel with the id of a RUNNING task, unless told
-- not to: with the server's notification queue full a transaction that notifies cannot commit, and the holder
-- looks for accepted cancels anyhow.
-- Raises TL404 when there is no such task, TL409 when it is terminal (the message names the state).
create or replace function tally.cancel_task(p_id bigint, p_notify boolean)
returns text
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_task tally.task;
begin
    select * into v_task from tally.task where task.id = p_id for update;
    if not found then
        raise exception 'there is no task %', p_id using errcode = 'TL404';
    end if;

    if v_task.state = 'QUEUED' then
        update tally.task
        set state = 'CANCELED',
            error = jsonb_build_object(
                'reason', 'canceled',
                'detail', case when v_task.attempt = 0 then 'not started' else 'not started again' end
            ),
            priority = coalesce(v_task.due_priority, v_task.priority),
            due_at = null,
            due_priority = null,
            finished_at = clock_timestamp()
        where task.id = p_id
        returning * into v_task;
    elsif v_task.state = 'RUNNING' then
        if v_task.cancel_requested_at is null then
            update tally.task
            set cancel_requested_at = clock_timestamp()
            where task.id = p_id
            returning * into v_task;
        end if;
        if p_notify then
            perform pg_notify('tally_cancel', p_id::text);
        end if;
    else
        raise exception 'task % is already %', p_id, v_task.state using errcode = 'TL409';
    end if;

    return tally.task_document(v_task);
end
$$;
