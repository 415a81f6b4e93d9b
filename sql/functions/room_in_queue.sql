-- How many of p_wanted new tasks a queue has room for: p_wanted, or fewer where its open tasks would pass max_open.
-- Called by submit_tasks, which holds the queue's advisory lock. Every open task was there when they were last
-- counted, or has drawn its position since; only where that does not decide are they counted, and that is remembered if it
-- will decide something (not where somebody holds the queue's row locked: it is not worth waiting for).
-- What others insert without that lock counts from its commit on, or, if that comes after a count that is remembered and
-- its position was drawn before, from the next count on.
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
begin
    select queue.max_open, queue.counted_open + drawn.last_value - queue.counted_at, drawn.last_value
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

    v_open := tally.open_count(p_queue);
    if v_open + p_wanted < v_max_open then
        update tally.queue
        set counted_open = v_open, counted_at = v_drawn
        where queue.name = (
            select locked.name from tally.queue as locked where locked.name = p_queue for no key update skip locked
        );
    end if;
    return greatest(0, least(p_wanted, v_max_open - v_open));
end
$$;
