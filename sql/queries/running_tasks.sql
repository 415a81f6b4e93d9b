-- The RUNNING rows under a dispatcher's id: id and attempt.
select task.id, task.attempt
from tally.task
where task.claimed_by = %(dispatcher)s and task.state = 'RUNNING'
