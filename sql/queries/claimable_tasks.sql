-- Candidates for trying one known task at a time, in claiming order; not those whose time is still to come, which are at
-- 32767. Locks nothing: a claim decides.
select task.id, task.attempt
from tally.task
where task.queue = %(queue)s
    and task.state = 'QUEUED'
    and task.priority < 32767
    and task.id <> all (%(excluded)s::bigint[])
order by task.priority, task.position
limit %(limit)s
