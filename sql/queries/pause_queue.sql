-- Stop claims from a queue. Admission goes on; no row when there is no such queue.
update tally.queue
set paused_at = coalesce(queue.paused_at, clock_timestamp())
where queue.name = %(queue)s
returning queue.name
