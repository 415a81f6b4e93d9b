-- The lowest id that is left; it rises while old tasks are removed.
select coalesce(min(id), 0) from tally.task
