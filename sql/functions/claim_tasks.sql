-- Claim up to p_free QUEUED tasks of a queue, by priority and position, for a dispatcher: QUEUED -> RUNNING.
-- Called by the dispatcher's loop; committed before any body starts. p_number is new for every call and larger
-- than the last: a call whose reply was lost is settled by it (settle_claim). The rows come in no promised order.
-- p_after_positions is the cursor, {"priority": position}: of a priority in it, what is at or below its position is not
-- looked at, so that a claim costs the same however many dead index entries lie there. p_excluded are ids to pass over.
-- p_only, where not null, are the only ids to take. The priority 32767 is that of tasks whose time is still to come
-- (docs/decisions/0021): the scan of the index ends before it, and they cost a claim nothing, however many they are.
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
set enable_bitmapscan = off
set enable_sort = off
set jit = off
as $$
declare
    v_fence bigint;
    v_stopped_at timestamptz;
    v_waiting boolean;
    v_range record;
    v_rows bigint;
    v_taken bigint := 0;
    v_left bigint;
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

    -- Where to go on in the index, and up to which priority before the next such place.
    for v_range in
        select
            start.priority, start.position,
            lead(start.priority, 1, 32767) over (order by start.priority) as next_priority
        from (
            select -32768, 0::bigint
            union all
            select passed.key::integer, passed.value::bigint from jsonb_each_text(p_after_positions) as passed
        ) as start (priority, position)
        order by start.priority
    loop
        return query
        with candidate as (
            select task.id
            from tally.task
            where task.queue = p_queue
                and task.state = 'QUEUED'
                and (task.priority, task.position) > (v_range.priority::smallint, v_range.position)
                and task.priority < v_range.next_priority
                and task.id <> all (p_excluded)
                and (p_only is null or task.id = any (p_only))
            order by task.priority, task.position
            limit p_free - v_taken
            for update skip locked
        )
        update tally.task
        set state = 'RUNNING',
            attempt = task.attempt + 1,
            claimed_by = p_dispatcher,
            claim_number = p_number,
            started_at = clock_timestamp()
        from candidate
        where task.id = candidate.id
        returning task.id, task.attempt, task.kind, task.input::text, task.priority, task.position;
        get diagnostics v_rows = row_count;
        v_taken := v_taken + v_rows;
        exit when v_taken = p_free;
    end loop;

    if p_only is not null then
        return;
    end if;
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
        and pg_notification_queue_usage() < 0.5
    then
        -- Where their cursors are beyond it, it was committed late.
        select task.position into v_left
        from tally.task
        where task.queue = p_queue
            and task.state = 'QUEUED'
            and (task.priority, task.position) > (v_range.priority::smallint, v_range.position)
            and task.priority < 32767
        order by task.priority, task.position
        limit 1;
        if found then
            perform tally.wake_dispatchers(p_queue, p_free, v_left, p_dispatcher);
        end if;
    end if;
end
$$;
