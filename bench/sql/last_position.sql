-- The last position given.
select coalesce(max(position), 0) from tally.task
