-- Claim up to p_free QUEUED tasks of a queue, by priority and position, for a dispatcher: QUEUED -> RUNNING.
-- Called by the dispatcher's loop; committed before any body starts. p_number is new for every call and larger
-- than the last: a call whose reply was lost is settled by it (settle_claim).
-- p_after_positions is the cursor, {"priority": position}: rows at or below it are not looked at. p_excluded are
-- ids to pass over. p_only, where not null, are the only ids to take.
-- Locks the dispatcher's row for key share, a statement of its own and first: a stopped dispatcher claims
-- nothing, and one that is being condemned waits and is then refused. Then the tasks' rows, skipping locked ones.
-- Keeps in the dispatcher's row whether it waits to be woken: whether this claim left slots free. A claim that took
-- all it asked for and leaves tasks behind wakes others that wait. (Not with p_only, where single tasks are tried.)
-- A paused queue gives nothing. Raises TL410 when the dispatcher is stopped or unknown, TL412 when p_number was
-- fenced off by a settlement.
create or replace function tally.claim_tasks(
    p_dispatcher uuid,
    p_number bigint,
    p_queue text,
    p_free integer,
    p_after_positions jsonb default '{}',
    p_excluded bigint[] default '{}',
    p_only bigint[] default null
)
returns table (id bigint, attempt integer, kind text, input text, priority smallint, "position" bigint)
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_fence bigint;
    v_stopped_at timestamptz;
    v_waiting boolean;
    v_taken bigint;
begin
    select dispatcher.claim_fence, dispatcher.stopped_at, dispatcher.waiting into v_fence, v_stopped_at, v_waiting
    from tally.dispatcher
    where dispatcher.id = p_dispatcher
    for key share;
    if not found or v_stopped_at is not null then
        raise exception 'dispatcher % is stopped or unknown', p_dispatcher using errcode = 'TL410';
    end if;
    if p_number <= v_fence then
        raise exception 'claim % of dispatcher % was fenced off at %', p_number, p_dispatcher, v_fence
            using errcode = 'TL412';
    end if;
    if exists (select from tally.queue where queue.name = p_queue and queue.paused_at is not null) then
        return;
    end if;

    return query
    with candidate as (
        select task.id
        from tally.task
        where task.queue = p_queue
            and task.state = 'QUEUED'
            and task.position > coalesce((p_after_positions ->> task.priority::text)::bigint, 0)
            and task.id <> all (p_excluded)
            and (p_only is null or task.id = any (p_only))
        order by task.priority, task.position
        limit p_free
        for update skip locked
    ),
    claimed as (
        update tally.task
        set state = 'RUNNING',
            attempt = task.attempt + 1,
            claimed_by = p_dispatcher,
            claim_number = p_number,
            started_at = clock_timestamp()
        from candidate
        where task.id = candidate.id
        returning task.id, task.attempt, task.kind, task.input::text, task.priority, task.position
    )
    select * from claimed order by claimed.priority, claimed.position;

    if p_only is not null then
        return;
    end if;
    get diagnostics v_taken = row_count;
    if v_waiting <> (v_taken < p_free) then
        -- A hint is not worth waiting for, least of all behind somebody who waits for this transaction: another claim
        -- finds what to correct.
        update tally.dispatcher
        set waiting = not v_waiting
        where dispatcher.id = (
            select locked.id from tally.dispatcher as locked
            where locked.id = p_dispatcher
            for no key update skip locked
        );
    end if;
    -- Where the notification queue fills up, this claim's commit must not depend on it.
    if v_taken = p_free
        and exists (
            select from tally.dispatcher
            where dispatcher.queue = p_queue and dispatcher.stopped_at is null and dispatcher.waiting
                and dispatcher.id <> p_dispatcher
        )
        and exists (select from tally.task where task.queue = p_queue and task.state = 'QUEUED')
        and pg_notification_queue_usage() < 0.5
    then
        perform tally.wake_dispatchers(p_queue, p_free, p_dispatcher);
    end if;
end
$$;
