-- Who threatens the queue, a row each, and by holding what: a snapshot, or notifications. Who has for a minute and more:
-- no transaction of ours lasts longer than a few seconds.
select
    'snapshot' as holds, pid, application_name, "user", database, tally.utc_text(since) as since, state,
    transactions, query
from tally.snapshot_holders('1 minute')
union all
select
    'notifications', pid, application_name, "user", database, tally.utc_text(since), state,
    null, query
from tally.notification_queue_holders('1 minute')
