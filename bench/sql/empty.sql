-- Remove every task.
truncate tally.task
