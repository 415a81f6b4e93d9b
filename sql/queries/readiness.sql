-- What readiness reports, as one JSON document: dispatchers that have not stopped, with what troubles them;
-- queues with their open counts; how full the instance's notification queue is (0 to 1).
select row_to_json(report)::text
from (
    select
        (
            select coalesce(json_agg(row_to_json(living) order by living.started_at), '[]')
            from (
                select
                    dispatcher.id, dispatcher.host, dispatcher.pid, dispatcher.slots,
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
        pg_notification_queue_usage() as notification_queue_usage
) as report
