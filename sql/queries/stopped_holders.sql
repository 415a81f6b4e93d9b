-- Dispatchers that are stopped or unknown and still have RUNNING rows under their name.
select distinct task.claimed_by
from tally.task
where task.state = 'RUNNING'
    and not exists (
        select from tally.dispatcher
        where dispatcher.id = task.claimed_by and dispatcher.stopped_at is null
    )
