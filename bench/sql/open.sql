-- Is a task open? Looked for from the end, where the last ones are, so that asking costs those who work nothing.
select exists (
    select from tally.task
    where task.queue = 'default' and task.state = 'QUEUED'
    order by task.priority desc, task.position desc
    limit 1
) or exists (
    select from tally.task where task.state = 'RUNNING'
)
