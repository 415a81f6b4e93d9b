-- Which lock a backend waits for, and who is in its way: a row for each, none while it does not wait.
-- A transaction prepared for two phases holds its locks under no process, 0. Of another role's session no more is told
-- than the asking role may see: its name, most often.
select distinct
    concat_ws(' ', waiting.locktype, waiting.relation::regclass, waiting.mode) as lock,
    holder.pid,
    case
        when holder.pid = 0 then 'a prepared transaction'
        else coalesce(nullif(activity.application_name, ''), activity.backend_type, 'unknown')
    end as name,
    activity.usename as role,
    activity.xact_start as since
from pg_locks as waiting
cross join unnest(pg_blocking_pids(%(pid)s)) as holder (pid)
left join pg_stat_activity as activity on activity.pid = holder.pid
where waiting.pid = %(pid)s and not waiting.granted
order by holder.pid
