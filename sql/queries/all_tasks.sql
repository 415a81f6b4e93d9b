-- The documents of all tasks, oldest first: for tests, whose database holds few.
select tally.task_document(task) from tally.task order by task.id
