-- Let claims go on, and wake the dispatchers; no row when there is no such queue.
with resumed as (
    update tally.queue set paused_at = null where queue.name = %(queue)s returning queue.name
)
select resumed.name, pg_notify('tally_work', json_build_object('queue', resumed.name, 'position', 0)::text)
from resumed
