-- End a dispatcher's leftover sessions, all or those of one name, and wait, bounded, until each is gone: a
-- killed process's statement may hold row locks and the advisory lock until it notices.
-- Called by a judge before it takes a dead dispatcher's rows, and by a session that finds its own half-dead
-- predecessor in the way. Never ends the calling session. Returns how many it ended.
create or replace function tally.end_backends(p_application_name_prefix text)
returns bigint
language sql
as $$
    select count(*) filter (where pg_terminate_backend(pg_stat_activity.pid, 1000))
    from pg_stat_activity
    where starts_with(pg_stat_activity.application_name, p_application_name_prefix)
        and pg_stat_activity.datname = current_database()
        and pg_stat_activity.usename = current_user
        and pg_stat_activity.pid <> pg_backend_pid()
$$;
