-- What a task that repeats this one by hand is submitted with, and whether it may be; no row when there is none.
select task.state, task.kind, task.queue, task.input::text from tally.task where task.id = %(id)s
