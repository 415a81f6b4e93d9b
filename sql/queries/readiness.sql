-- What readiness reports, as one JSON document: dispatchers that have not stopped, with what troubles them;
-- queues with their open counts; how full the instance's notification queue is (0 to 1). Once more than a
-- thousandth of that is in use, also who may be holding it: the sessions whose transactions have been open longest.
-- A notification stays until every session that listens has read it, and none reads in the middle of a transaction.
-- Who is in one is seen by the locks, whoever asks; name, state and time of others only as far as the role may.
select row_to_json(report)::text
from (
    select
        (
            select coalesce(json_agg(row_to_json(living) order by living.started_at), '[]')
            from (
                select
                    dispatcher.id, dispatcher.host, dispatcher.pid, dispatcher.queue, dispatcher.slots,
                    tally.utc_text(dispatcher.started_at) as started_at,
                    dispatcher.beat,
                    tally.utc_text(dispatcher.beaten_at) as beaten_at,
                    dispatcher.trouble
                from tally.dispatcher
                where dispatcher.stopped_at is null
            ) as living
        ) as dispatchers,
        (
            select coalesce(json_agg(row_to_json(counted) order by counted.queue), '[]')
            from (
                select
                    queue.name as queue, queue.max_open,
                    tally.open_count(queue.name) as open,
                    queue.paused_at is not null as paused
                from tally.queue
            ) as counted
        ) as queues,
        notifications.usage as notification_queue_usage,
        case when notifications.usage > 0.001 then (
            select coalesce(json_agg(row_to_json(holder) order by holder.since, holder.pid), '[]')
            from (
                select
                    activity.pid, activity.application_name,
                    activity.usename as user, activity.datname as database,
                    tally.utc_text(activity.xact_start) as since,
                    activity.state
                from pg_locks as own_transaction
                join pg_stat_activity as activity on activity.pid = own_transaction.pid
                where own_transaction.locktype = 'virtualxid'
                    and own_transaction.mode = 'ExclusiveLock'
                    and own_transaction.pid <> pg_backend_pid()
                    and activity.datname is not null
                order by activity.xact_start, activity.pid
                limit 5
            ) as holder
        ) else '[]' end as notification_queue_holders
    from (select pg_notification_queue_usage() as usage) as notifications
) as report
