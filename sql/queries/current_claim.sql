-- Is this claim still current, its dispatcher not stopped? One row of two booleans:
-- the dispatcher may go on; the task is RUNNING under this attempt of its.
select
    exists (
        select from tally.dispatcher
        where dispatcher.id = %(dispatcher)s and dispatcher.stopped_at is null
    ),
    exists (
        select from tally.task
        where task.id = %(id)s
            and task.claimed_by = %(dispatcher)s
            and task.attempt = %(attempt)s
            and task.state = 'RUNNING'
    )
