-- For tests, which do not wait: of the tasks of a queue that wait for their time, let that of the first have come.
-- release_due_tasks lets it go then. One row, the task's id; none where none waits. Locks the task's row, skipping locked
-- ones; whoever lets it go meanwhile is as good.
update tally.task
set due_at = moment.now,
    position = (extract(epoch from moment.now) * 1000000)::bigint
from (select clock_timestamp() as now) as moment
where task.id = (
    select waiting.id
    from tally.task as waiting
    where waiting.queue = %(queue)s and waiting.state = 'QUEUED' and waiting.priority = 32767
    order by waiting.position
    limit 1
    for update skip locked
)
returning task.id
