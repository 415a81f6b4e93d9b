-- Write what a dispatcher's claims ended in: RUNNING -> SUCCEEDED or FAILED, and CANCELED wherever a cancel was
-- accepted, whatever the body then did; p_endings says how it ended (not started, stopped, returned, raised).
-- Called by the dispatcher's outcomes, as often as it takes. Every write names dispatcher and attempt.
-- Returns a verdict per task: written; yours already (an earlier try of this very outcome was committed); late
-- (the claim is no longer current: nothing was changed); locked (somebody holds the row: come back).
-- Locks the tasks' rows, skipping locked ones, and writes what it finds in them: in one statement, since a row that was
-- locked is read as it is then, and the claim that the write names can't come back once it is over.
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
    v_written bigint[];
begin
    with locked as materialized (
        select found.*, given.state, given.result, given.error, given.ending
        from unnest(p_ids, p_attempts, p_states, p_results, p_errors, p_endings)
            as given (id, attempt, state, result, error, ending)
        cross join lateral (
            select
                task.id,
                task.claimed_by is not distinct from p_dispatcher and task.attempt = given.attempt as mine,
                task.state = 'RUNNING' as is_running,
                task.cancel_requested_at is not null as is_canceled
            from tally.task
            where task.id = given.id
            for update skip locked
        ) as found
    ),
    written as (
        update tally.task
        set state = case when locked.is_canceled then 'CANCELED' else locked.state end,
            result = case when locked.state = 'SUCCEEDED' and not locked.is_canceled then locked.result end,
            error = case
                when locked.is_canceled or locked.state = 'CANCELED'
                    then jsonb_build_object('reason', 'canceled', 'detail', locked.ending)
                else locked.error
            end,
            finished_at = clock_timestamp()
        from locked
        where task.id = locked.id and locked.mine and locked.is_running
        returning task.id
    )
    select
        (select array_agg(locked.id) from locked),
        (select array_agg(written.id) from written)
    into v_locked, v_written;

    return query select written.id, 'written' from unnest(v_written) as written (id);
    if cardinality(v_written) = cardinality(p_ids) then
        return;
    end if;

    return query
    select
        given.id,
        case
            when task.id is not null and task.id not in (select unnest(v_locked)) then 'locked'
            when task.claimed_by = p_dispatcher
                and task.attempt = given.attempt
                and task.state = ending.state
                and task.result is not distinct from case when ending.state = 'SUCCEEDED' then given.result end
                and task.error is not distinct from case
                    when ending.state = 'CANCELED'
                        then jsonb_build_object('reason', 'canceled', 'detail', given.ending)
                    else given.error
                end then 'yours already'
            else 'late'
        end
    from unnest(p_ids, p_attempts, p_states, p_results, p_errors, p_endings)
        as given (id, attempt, state, result, error, ending)
    left join tally.task on task.id = given.id
    cross join lateral (
        select case when task.cancel_requested_at is null then given.state else 'CANCELED' end as state
    ) as ending
    where given.id not in (select unnest(v_written));
end
$$;
