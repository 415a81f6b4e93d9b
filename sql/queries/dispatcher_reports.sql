-- The dispatchers that have not stopped and the last ten that have.
select *
from (
    select
        dispatcher.id, dispatcher.host, dispatcher.pid, dispatcher.queue, dispatcher.slots, dispatcher.beat,
        coalesce(dispatcher.stopped_why, 'running') as state,
        coalesce(dispatcher.trouble, dispatcher.stopped_proof) as remark,
        dispatcher.started_at
    from tally.dispatcher
    order by dispatcher.stopped_at desc nulls first, dispatcher.started_at desc
    limit 10 + (select count(*) from tally.dispatcher where dispatcher.stopped_at is null)
) as report
order by report.started_at
