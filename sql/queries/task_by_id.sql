-- The document of one task; no row when there is none.
select tally.task_document(task) from tally.task where task.id = %(id)s
