-- The RUNNING tasks of a dispatcher whose cancel was accepted: the truth that tally_cancel only hints at.
select task.id
from tally.task
where task.claimed_by = %(dispatcher)s
    and task.state = 'RUNNING'
    and task.cancel_requested_at is not null
