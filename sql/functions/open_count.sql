-- How many tasks of a queue are open (QUEUED or RUNNING). Exact for its snapshot; locks nothing.
create or replace function tally.open_count(p_queue text)
returns bigint
language plpgsql
stable
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
begin
    return (
        select
            (select count(*) from tally.task where task.queue = p_queue and task.state = 'QUEUED')
            + (select count(*) from tally.task where task.queue = p_queue and task.state = 'RUNNING')
    );
end
$$;
