-- So many tasks that succeeded a month ago.
insert into tally.task (
    token, queue, kind, input, state, attempt, claimed_by, claim_number, created_at, started_at, finished_at, result
)
select
    gen_random_uuid(), 'default', 'noop', '{}', 'SUCCEEDED', 1, gen_random_uuid(), 1,
    aged.moment, aged.moment, aged.moment, 'null'
from generate_series(1, %(tasks)s)
cross join (select clock_timestamp() - interval '30 days' as moment) as aged
