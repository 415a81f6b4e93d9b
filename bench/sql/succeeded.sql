-- How many tasks have succeeded, and over how many seconds, from the first claim to the last outcome.
select count(*), extract(epoch from max(task.finished_at) - min(task.started_at))::float8
from tally.task
where task.state = 'SUCCEEDED'
