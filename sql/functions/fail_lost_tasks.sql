-- RUNNING rows under a dispatcher's id that it does not hold, so that it can never tell how they ended:
-- RUNNING -> FAILED, or CANCELED where a cancel was accepted. Returns the ids that were written.
-- Called by the dispatcher's loop at its sweep, with no claim in flight or unsettled. Every write names the
-- attempt that was seen. Locks the tasks' rows, skipping locked ones: the next sweep comes back to those.
create or replace function tally.fail_lost_tasks(p_dispatcher uuid, p_ids bigint[], p_attempts integer[])
returns setof bigint
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_locked bigint[];
begin
    select array_agg(locked.id) into v_locked
    from (
        select task.id from tally.task where task.id = any (p_ids) order by task.id for update skip locked
    ) as locked;

    return query
    update tally.task
    set state = case when task.cancel_requested_at is null then 'FAILED' else 'CANCELED' end,
        error = jsonb_build_object(
            'reason',
            case
                when task.cancel_requested_at is null then 'the database lost this task''s outcome'
                else 'canceled'
            end,
            'detail',
            format('dispatcher %s does not hold attempt %s of this task', p_dispatcher, task.attempt)
        ),
        finished_at = clock_timestamp()
    from unnest(p_ids, p_attempts) as lost (id, attempt)
    where task.id = lost.id
        and task.id = any (v_locked)
        and task.attempt = lost.attempt
        and task.claimed_by = p_dispatcher
        and task.state = 'RUNNING'
    returning task.id;
end
$$;
