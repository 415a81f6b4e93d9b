-- How many tasks of a queue are open (QUEUED or RUNNING). Exact for its snapshot; locks nothing.
create or replace function tally.open_count(p_queue text)
returns bigint
language plpgsql
stable
as $$
begin
    return (
        select count(*) from tally.task where task.queue = p_queue and task.state in ('QUEUED', 'RUNNING')
    );
end
$$;
