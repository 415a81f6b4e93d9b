-- What each queue holds, a row a queue: capacity, pause, and the tasks by state; and how many of the QUEUED ones wait for
-- the time of their next attempt.
select
    queue.name,
    queue.max_open,
    queue.paused_at is not null,
    count(*) filter (where task.state = 'QUEUED'),
    count(*) filter (where task.due_at is not null),
    count(*) filter (where task.state = 'RUNNING'),
    count(*) filter (where task.state = 'SUCCEEDED'),
    count(*) filter (where task.state = 'FAILED'),
    count(*) filter (where task.state = 'CANCELED')
from tally.queue
left join tally.task on task.queue = queue.name
group by queue.name
order by queue.name
