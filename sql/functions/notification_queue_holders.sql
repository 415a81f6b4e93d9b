-- Who may be holding the server's notification queue, once more than a thousandth of it is in use: the sessions whose
-- transactions have been open longest, and longer than p_age. A notification stays until every session that listens
-- has read it, and none reads in the middle of a transaction.
-- Called by readiness, `python -m sql status` and the dispatchers' retention. Locks nothing, raises nothing.
-- Who is in a transaction is seen by the locks, whoever asks; name, state, time and query of others only as far as the
-- role may.
create or replace function tally.notification_queue_holders(p_age interval)
returns table (
    pid integer, application_name text, "user" text, database text, since timestamptz, state text, query text
)
language plpgsql
stable
as $$
begin
    if pg_notification_queue_usage() <= 0.001 then
        return;
    end if;
    return query
    select
        activity.pid, activity.application_name, activity.usename::text, activity.datname::text,
        activity.xact_start, activity.state, tally.query_excerpt(activity.query)
    from pg_locks as own_transaction
    join pg_stat_activity as activity on activity.pid = own_transaction.pid
    where own_transaction.locktype = 'virtualxid'
        and own_transaction.mode = 'ExclusiveLock'
        and own_transaction.pid <> pg_backend_pid()
        and activity.datname is not null
        and coalesce(activity.xact_start < clock_timestamp() - p_age, true)
    order by activity.xact_start, activity.pid
    limit 5;
end
$$;
