-- Remove the rows of dispatchers that stopped longer than p_keep ago, by the database's clock, and have no RUNNING task
-- left, at most p_limit of them; return how many. To its own process, should it wake, such a dispatcher is unknown, which
-- is as good as stopped: it may neither claim nor beat.
-- Called as remove_tasks is. Locks the rows, skipping locked ones.
create or replace function tally.remove_dispatchers(p_keep interval, p_limit integer)
returns bigint
language sql
set enable_seqscan = off
set jit = off
as $$
    with stopped as (
        select dispatcher.id
        from tally.dispatcher
        where dispatcher.stopped_at < clock_timestamp() - p_keep
            and not exists (
                select from tally.task where task.claimed_by = dispatcher.id and task.state = 'RUNNING'
            )
        limit p_limit
        for update skip locked
    ),
    removed as (
        delete from tally.dispatcher using stopped where dispatcher.id = stopped.id returning dispatcher.id
    )
    select count(*) from removed
$$;
