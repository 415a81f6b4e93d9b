-- The last id given.
select coalesce(max(id), 0) from tally.task
