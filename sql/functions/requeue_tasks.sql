-- Give tasks whose attempt has ended another one, where their kind, as it is published, has one left and no cancel was
-- accepted: RUNNING -> QUEUED, under a new position and with the ended attempt kept. p_errors say what ended it.
-- Called by retry_tasks, and with p_crashed, which leaves out kinds that are not to run again after a crash, by
-- recover_tasks and fail_lost_tasks. Every write names dispatcher and attempt. Locks the tasks' rows, skipping locked ones.
-- Due after p_delays seconds; where null after the kind's backoff: exponential, capped, and of that a half at random.
-- Returns what was written, and in how many seconds each is due: 0 at once, and then it is announced, unless the
-- notification queue fills up: this write's commit must not depend on it.
create or replace function tally.requeue_tasks(
    p_dispatcher uuid,
    p_ids bigint[],
    p_attempts integer[],
    p_errors jsonb[],
    p_delays double precision[],
    p_crashed boolean
)
returns table (id bigint, due_seconds double precision)
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_now constant timestamptz := clock_timestamp();
    v_ids bigint[];
    v_seconds double precision[];
    v_queues text[];
    v_positions bigint[];
begin
    with held as materialized (
        -- Row by row, by its key: the planner takes a dispatcher's tasks for few, and would compare each with all of these.
        select found.*, given.error, given.delay
        from unnest(p_ids, p_attempts, p_errors, p_delays) as given (id, attempt, error, delay)
        cross join lateral (
            select
                task.id, task.kind, task.attempt,
                task.claimed_by is not distinct from p_dispatcher
                    and task.attempt = given.attempt
                    and task.state = 'RUNNING'
                    and task.cancel_requested_at is null as may_go_on
            from tally.task
            where task.id = given.id
            for update skip locked
        ) as found
    ),
    again as materialized (
        select
            held.id, held.error,
            -- A wait of thirty years is as good as any longer one, which a timestamp may not hold. An exponent of 600
            -- is beyond any cap, and a number still.
            greatest(0, least(1e9, coalesce(
                held.delay,
                (0.5 + random() / 2) * least(
                    kind.backoff_cap_seconds,
                    kind.backoff_first_seconds * exp(least(600, ln(kind.backoff_factor) * (held.attempt - 1)))
                )
            ))) as seconds
        from held
        join tally.kind on kind.kind = held.kind
        where held.may_go_on
            and held.attempt < kind.max_attempts
            and (kind.on_crash = 'retry' or not p_crashed)
    ),
    requeued as (
        update tally.task
        set state = 'QUEUED',
            claimed_by = null,
            claim_number = null,
            started_at = null,
            attempts = coalesce(task.attempts, '[]') || jsonb_build_object(
                'attempt', task.attempt,
                'started_at', tally.utc_text(task.started_at),
                'finished_at', tally.utc_text(v_now),
                'error', again.error,
                'dispatcher', p_dispatcher
            ),
            priority = case when again.seconds > 0 then 32767 else least(task.priority, 32766) end,
            position = case
                when again.seconds > 0 then (extract(epoch from due.at) * 1000000)::bigint
                else nextval('tally.task_position')
            end,
            due_at = case when again.seconds > 0 then due.at end,
            due_priority = case when again.seconds > 0 then least(task.priority, 32766) end
        from again
        cross join lateral (select v_now + make_interval(secs => again.seconds) as at) as due
        where task.id = again.id
        returning task.id, task.queue, task.position, again.seconds
    )
    select
        array_agg(requeued.id), array_agg(requeued.seconds), array_agg(requeued.queue), array_agg(requeued.position)
    into v_ids, v_seconds, v_queues, v_positions
    from requeued;

    if 0 = any (v_seconds) and pg_notification_queue_usage() < 0.5 then
        perform tally.announce_tasks(made.queue, count(*), min(made.position))
        from unnest(v_queues, v_positions, v_seconds) as made (queue, position, seconds)
        where made.seconds = 0
        group by made.queue;
    end if;

    return query select * from unnest(v_ids, v_seconds);
end
$$;
