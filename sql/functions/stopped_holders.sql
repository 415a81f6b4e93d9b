-- Dispatchers that are stopped or unknown and still have RUNNING rows under their name.
-- Called by every judge at every look. Locks nothing. Never scans the table: with statistics from a time when half of a
-- small table was RUNNING, a look took 130 ms at a million rows (docs/decisions/0007).
create or replace function tally.stopped_holders()
returns table (holder uuid)
language sql
stable
set enable_seqscan = off
set jit = off
as $$
    select distinct task.claimed_by
    from tally.task
    where task.state = 'RUNNING'
        and not exists (
            select from tally.dispatcher
            where dispatcher.id = task.claimed_by and dispatcher.stopped_at is null
        )
$$;
