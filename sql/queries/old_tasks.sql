-- Walk the tasks in order of id, from beyond `after`, over at most `limit` rows: where that got to, the ids of those that
-- ended longer than `keep` ago, and whether the walk is over. Locks nothing.
-- It is over where the table ends, or at a row made within `keep`: ids are given in the order of creation, but for rows
-- made in the same moment and for steps of the clock. What lies beyond such a row is removed once that has aged;
-- a row from the future, made before the clock was set back, is passed over.
select
    max(walked.id) as reached,
    coalesce(
        array_agg(walked.id order by walked.id) filter (where walked.finished_at < clock.now - %(keep)s), '{}'
    ) as old,
    count(*) < %(limit)s or bool_or(walked.created_at between clock.now - %(keep)s and clock.now) as is_over
from (
    select task.id, task.created_at, task.finished_at
    from tally.task
    where task.id > %(after)s
    order by task.id
    limit %(limit)s
) as walked
cross join (select clock_timestamp() as now) as clock
