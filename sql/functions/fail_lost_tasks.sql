-- RUNNING rows under a dispatcher's id that it does not hold, so that it can never tell how they ended:
-- RUNNING -> FAILED, or CANCELED where a cancel was accepted, or back to QUEUED where the kind is to run again after a crash
-- and has an attempt left (requeue_tasks). Returns the ids that were written.
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
    v_attempts integer[];
    v_errors jsonb[];
begin
    with found as materialized (
        select task.*
        from unnest(p_ids, p_attempts) as lost (id, attempt)
        cross join lateral (
            select
                task.id, lost.attempt,
                task.claimed_by is not distinct from p_dispatcher
                    and task.attempt = lost.attempt
                    and task.state = 'RUNNING' as is_lost,
                jsonb_build_object(
                    'reason',
                    case
                        when task.cancel_requested_at is null then 'the database lost this task''s outcome'
                        else 'canceled'
                    end,
                    'detail',
                    format('dispatcher %s does not hold attempt %s of this task', p_dispatcher, task.attempt)
                ) as error
            from tally.task
            where task.id = lost.id
            for update skip locked
        ) as task
    )
    select array_agg(found.id), array_agg(found.attempt), array_agg(found.error)
    into v_locked, v_attempts, v_errors
    from found
    where found.is_lost;

    return query
    select requeued.id from tally.requeue_tasks(p_dispatcher, v_locked, v_attempts, v_errors, null, true) as requeued;

    return query
    update tally.task
    set state = case when task.cancel_requested_at is null then 'FAILED' else 'CANCELED' end,
        error = locked.error,
        finished_at = clock_timestamp()
    from unnest(v_locked, v_errors) as locked (id, error)
    where task.id = locked.id
        -- Those that are QUEUED again have no claim.
        and task.claim_number is not null
    returning task.id;
end
$$;
