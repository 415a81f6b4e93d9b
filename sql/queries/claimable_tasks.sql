-- Candidates for trying one known task at a time, in claiming order. Locks nothing: a claim decides.
select task.id
from tally.task
where task.queue = %(queue)s
    and task.state = 'QUEUED'
    and task.id <> all (%(excluded)s::bigint[])
order by task.priority, task.position
limit %(limit)s
