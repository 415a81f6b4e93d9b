-- Is this claim still current, its dispatcher not stopped? One row of two booleans:
-- the dispatcher may go on; the task is RUNNING under this attempt of its.
-- Writes to the log, though no row: where standbys confirm every commit, the answer of a primary that was replaced
-- without knowing it is not believed.
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
from pg_logical_emit_message(true, 'tally', 'asked')
