-- Write what a dispatcher's claims ended in: RUNNING -> SUCCEEDED or FAILED, and CANCELED wherever a cancel was
-- accepted, whatever the body then did; p_endings says how it ended (not started, stopped, returned, raised).
-- Called by the dispatcher's outcomes, as often as it takes. Every write names dispatcher and attempt.
-- Returns a verdict per task: written; yours already (an earlier try of this very outcome was committed); late
-- (the claim is no longer current: nothing was changed); locked (somebody holds the row: come back).
-- Locks the tasks' rows, in order of id, skipping locked ones: a statement of its own, first.
create or replace function tally.finish_tasks(
    p_dispatcher uuid,
    p_ids bigint[],
    p_attempts integer[],
    p_states text[],
    p_results jsonb[],
    p_errors jsonb[],
    p_endings text[]
)
returns table (id bigint, verdict text)
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
    with outcome as (
        select
            task.id,
            task.state as old_state,
            task.claimed_by is not distinct from p_dispatcher and task.attempt = given.attempt as mine,
            ending.state,
            case when ending.state = 'SUCCEEDED' then given.result end as result,
            case
                when ending.state = 'CANCELED'
                    then jsonb_build_object('reason', 'canceled', 'detail', given.ending)
                else given.error
            end as error,
            task.result as old_result,
            task.error as old_error
        from unnest(p_ids, p_attempts, p_states, p_results, p_errors, p_endings)
            as given (id, attempt, state, result, error, ending)
        join tally.task on task.id = given.id
        cross join lateral (
            select case when task.cancel_requested_at is null then given.state else 'CANCELED' end as state
        ) as ending
        where task.id = any (v_locked)
    ),
    written as (
        update tally.task
        set state = outcome.state,
            result = outcome.result,
            error = outcome.error,
            finished_at = clock_timestamp()
        from outcome
        where task.id = outcome.id and outcome.mine and outcome.old_state = 'RUNNING'
        returning task.id
    )
    select
        given.id,
        case
            when written.id is not null then 'written'
            when outcome.id is null and exists (select from tally.task where task.id = given.id) then 'locked'
            when outcome.mine
                and outcome.old_state = outcome.state
                and outcome.old_result is not distinct from outcome.result
                and outcome.old_error is not distinct from outcome.error then 'yours already'
            else 'late'
        end
    from unnest(p_ids) as given (id)
    left join outcome on outcome.id = given.id
    left join written on written.id = given.id;
end
$$;
