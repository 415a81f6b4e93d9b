-- The advisory key that serialises admission to a queue.
create or replace function tally.queue_lock_key(p_queue text)
returns bigint
language sql
immutable
as $$
    select hashtextextended('tally:queue:' || p_queue, 0)
$$;
