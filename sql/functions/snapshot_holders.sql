-- Who keeps dead rows from being removed, here and now, oldest first: every update leaves one, and while somebody may
-- still see them no vacuum removes any, so that the tables and what is walked in their indexes only grow.
-- Called by readiness, `python -m sql status` and the dispatchers' retention. Locks nothing, raises nothing.
-- Those are sessions with a snapshot or a transaction id (of this database, or of a standby that reports its own),
-- transactions prepared for two phases, and replication slots with an xmin (catalog_xmin holds catalogs back, no
-- table of ours). Not a vacuum: nothing waits for its snapshot.
-- `transactions`: how many have begun since. Named are those older than p_age; where there is no time to be seen (a
-- slot, a standby, another role's session), those that a hundred thousand transactions have begun after.
create or replace function tally.snapshot_holders(p_age interval)
returns table (
    pid integer, application_name text, "user" text, database text, since timestamptz, state text,
    transactions integer, query text
)
language sql
stable
as $$
    with holder as (
        select
            activity.pid, activity.application_name, activity.usename as user, activity.datname as database,
            activity.xact_start as since, activity.state,
            greatest(age(activity.backend_xid), age(activity.backend_xmin)) as transactions,
            activity.query
        from pg_stat_activity as activity
        where (activity.backend_xid is not null or activity.backend_xmin is not null)
            and (activity.datname = current_database() or activity.datname is null)
            and activity.pid <> pg_backend_pid()
            and activity.pid not in (select vacuuming.pid from pg_stat_progress_vacuum as vacuuming)
        union all
        select
            null, 'prepared transaction ' || prepared.gid, prepared.owner, prepared.database,
            prepared.prepared, 'prepared', age(prepared.transaction), null
        from pg_prepared_xacts as prepared
        where prepared.database = current_database()
        union all
        select
            slot.active_pid, 'replication slot ' || slot.slot_name, null, slot.database,
            null, case when slot.active then 'active' else 'inactive' end, age(slot.xmin), null
        from pg_replication_slots as slot
        where slot.xmin is not null
    )
    select
        holder.pid, holder.application_name, holder.user, holder.database, holder.since, holder.state,
        holder.transactions, tally.query_excerpt(holder.query)
    from holder
    where coalesce(holder.since < clock_timestamp() - p_age, holder.transactions > 100000)
    order by holder.transactions desc, holder.since, holder.pid
    limit 5
$$;
