-- Settle a claim whose reply was lost: returns exactly the rows that it took, each still RUNNING under it.
-- Called by the dispatcher's loop on a new connection, before its next claim. Locks the dispatcher's row for
-- update, a statement of its own and first: a claim of that number still under way ends before this reads, and
-- one that arrives later is refused, because the fence is raised to its number.
-- Asking again returns the same rows. Raises TL410 when the dispatcher is stopped or unknown.
create or replace function tally.settle_claim(p_dispatcher uuid, p_number bigint)
returns table (id bigint, attempt integer, kind text, input text, priority smallint, "position" bigint)
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_stopped_at timestamptz;
begin
    select dispatcher.stopped_at into v_stopped_at
    from tally.dispatcher
    where dispatcher.id = p_dispatcher
    for update;
    if not found or v_stopped_at is not null then
        raise exception 'dispatcher % is stopped or unknown', p_dispatcher using errcode = 'TL410';
    end if;

    update tally.dispatcher
    set claim_fence = greatest(dispatcher.claim_fence, p_number)
    where dispatcher.id = p_dispatcher;

    return query
    select task.id, task.attempt, task.kind, task.input::text, task.priority, task.position
    from tally.task
    where task.claimed_by = p_dispatcher and task.claim_number = p_number and task.state = 'RUNNING'
    order by task.priority, task.position;
end
$$;
