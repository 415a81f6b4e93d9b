-- The tasks whose time has come, to release one known task at a time, in that order. Locks nothing.
select task.id
from tally.task
where task.queue = %(queue)s
    and task.state = 'QUEUED'
    and task.priority = 32767
    and task.due_at <= clock_timestamp()
    and task.id <> all (%(excluded)s::bigint[])
order by task.position
limit %(limit)s
