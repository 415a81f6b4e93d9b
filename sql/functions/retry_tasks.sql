-- Write that an attempt has ended which may be repeated: RUNNING -> QUEUED where the kind, as it is published, has an
-- attempt left, else FAILED with the error given; and CANCELED wherever a cancel was accepted, with p_endings saying how
-- the body ended. Due in p_delays seconds; where null, after the kind's backoff (requeue_tasks).
-- Called by the dispatcher's outcomes, as often as it takes. Every write names dispatcher and attempt.
-- Returns per task a verdict, one of those of finish_tasks; the state that this outcome was written as, null where it was
-- not; and where that is QUEUED, in how many seconds the task is due, 0 where it can be, or was, claimed.
-- An earlier try that was committed is known by the ended attempt, which is kept with its dispatcher and error, whatever
-- has become of the task since.
-- Locks the tasks' rows, skipping locked ones.
create or replace function tally.retry_tasks(
    p_dispatcher uuid,
    p_ids bigint[],
    p_attempts integer[],
    p_errors jsonb[],
    p_endings text[],
    p_delays double precision[]
)
returns table (id bigint, verdict text, state text, due_seconds double precision)
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_locked bigint[];
    v_requeued bigint[];
    v_seconds double precision[];
    v_finished bigint[];
    v_verdicts text[];
begin
    -- Only of a row that is locked from here on can it be said that it was not requeued because no attempt is left.
    select array_agg(locked.id) into v_locked
    from (
        select task.id from tally.task where task.id = any (p_ids) order by task.id for update skip locked
    ) as locked;

    select array_agg(requeued.id), array_agg(requeued.due_seconds) into v_requeued, v_seconds
    from tally.requeue_tasks(p_dispatcher, p_ids, p_attempts, p_errors, p_delays, false) as requeued;

    return query select made.id, 'written', 'QUEUED', made.seconds from unnest(v_requeued, v_seconds) as made (id, seconds);
    if cardinality(v_requeued) = cardinality(p_ids) then
        return;
    end if;

    select array_agg(finished.id), array_agg(finished.verdict) into v_finished, v_verdicts
    from (
        select
            array_agg(given.id) as ids,
            array_agg(given.attempt) as attempts,
            array_agg('FAILED'::text) as states,
            array_agg(null::jsonb) as results,
            array_agg(given.error) as errors,
            array_agg(given.ending) as endings
        from unnest(p_ids, p_attempts, p_errors, p_endings) as given (id, attempt, error, ending)
        where given.id = any (v_locked) and given.id <> all (coalesce(v_requeued, '{}'))
    ) as rest
    cross join lateral tally.finish_tasks(
        p_dispatcher, rest.ids, rest.attempts, rest.states, rest.results, rest.errors, rest.endings
    ) as finished;

    return query
    select
        given.id,
        case
            when task.id is not null and finished.id is null then 'locked'
            when kept.is_there then 'yours already'
            else coalesce(finished.verdict, 'late')
        end,
        case
            when kept.is_there then 'QUEUED'
            when finished.verdict in ('written', 'yours already') then task.state
        end,
        case
            when kept.is_there and task.attempt = given.attempt and task.due_at is not null
                then greatest(0, extract(epoch from (task.due_at - clock_timestamp()))::double precision)
            when kept.is_there then 0
        end
    from unnest(p_ids, p_attempts, p_errors) as given (id, attempt, error)
    left join tally.task on task.id = given.id
    left join unnest(v_finished, v_verdicts) as finished (id, verdict) on finished.id = given.id
    cross join lateral (
        select finished.id is not null and exists (
            select
            from jsonb_array_elements(task.attempts) as ended (entry)
            where (ended.entry ->> 'attempt')::integer = given.attempt
                and ended.entry ->> 'dispatcher' = p_dispatcher::text
                and ended.entry -> 'error' = given.error
        ) as is_there
    ) as kept
    where given.id <> all (coalesce(v_requeued, '{}'));
end
$$;
