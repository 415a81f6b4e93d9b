-- What readiness reports, as one JSON document: dispatchers that have not stopped, with what troubles them;
-- queues with their open counts; how full the instance's notification queue is (0 to 1), and who may be holding it;
-- who has held dead rows back for a minute and more. The service is ready all the same: these threaten it.
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
        (
            select coalesce(json_agg(row_to_json(holder) order by holder.since, holder.pid), '[]')
            from (
                select
                    pid, application_name, "user", database, tally.utc_text(since) as since, state, query
                from tally.notification_queue_holders('0')
            ) as holder
        ) as notification_queue_holders,
        (
            select coalesce(json_agg(row_to_json(holder) order by holder.transactions desc), '[]')
            from (
                select
                    pid, application_name, "user", database, tally.utc_text(since) as since, state,
                    transactions, query
                from tally.snapshot_holders('1 minute')
            ) as holder
        ) as snapshot_holders
    from (select pg_notification_queue_usage() as usage) as notifications
) as report
