-- How many of p_wanted new tasks a queue has room for: p_wanted, or fewer where its open tasks would pass max_open.
-- Called by submit_tasks, which holds the queue's advisory lock. Every open task was there when they were last
-- counted, or has drawn its position since; only where that does not decide are they counted, and that is remembered if it
-- will decide something (not where somebody holds the queue's row locked: it is not worth waiting for).
-- What others insert without that lock counts from its commit on: while a session that is not ours may have drawn
-- positions and not committed, a count is not remembered.
-- Raises TL404 when there is no such queue.
create or replace function tally.room_in_queue(p_queue text, p_wanted integer)
returns integer
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_max_open integer;
    v_open bigint;
    v_drawn bigint;
    v_is_whole boolean;
begin
    select
        queue.max_open,
        -- A sequence that was set back tells nothing.
        case when drawn.last_value < queue.counted_at then queue.max_open
            else queue.counted_open + drawn.last_value - queue.counted_at end,
        drawn.last_value
    into v_max_open, v_open, v_drawn
    from tally.queue
    cross join tally.task_position as drawn
    where queue.name = p_queue;
    if not found then
        raise exception 'there is no queue named %', quote_literal(p_queue) using errcode = 'TL404';
    end if;
    if v_max_open is null or v_open + p_wanted <= v_max_open then
        return p_wanted;
    end if;

    -- Before the count: who has ended by now is counted.
    v_is_whole := not exists (
        select
        from pg_locks as held
        left join pg_stat_activity as session on session.pid = held.pid
        where held.relation = 'tally.task'::regclass
            and held.database = (select here.oid from pg_database as here where here.datname = current_database())
            and held.mode = 'RowExclusiveLock'
            and held.granted
            and held.pid is distinct from pg_backend_pid()
            and coalesce(session.application_name, '') not like 'tally%'
    );
    v_open := tally.open_count(p_queue);
    if v_is_whole and v_open + p_wanted < v_max_open then
        update tally.queue
        set counted_open = v_open, counted_at = v_drawn
        where queue.name = (
            select locked.name from tally.queue as locked where locked.name = p_queue for no key update skip locked
        );
    end if;
    return greatest(0, least(p_wanted, v_max_open - v_open));
end
$$;
