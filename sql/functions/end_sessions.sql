-- End what sessions these dispatchers have, and wait, at most a quarter of a second for all of them together, until each is
-- gone: a killed process's statement may hold row locks until it notices, a frozen one's session holds its proof of
-- life. Called by a judge before it condemns them. Locks nothing.
-- p_beats are the beats that the judge watched, a dispatcher each: the sessions of one that beat since are left alone.
-- Ends exactly those sessions that were there at first, known by process id and start, and never the calling one.
-- Returns the dispatchers of which none of these is left, and whose lock is free. The others' may be frozen
-- themselves, or not the caller's to end: nothing is raised for that, a later look asks again.
create or replace function tally.end_sessions(p_dispatchers uuid[], p_beats bigint[])
returns table (id uuid)
language plpgsql
as $$
declare
    v_ids uuid[];
    v_pids integer[];
    v_starts timestamptz[];
begin
    select array_agg(suspect.id), array_agg(session.pid), array_agg(session.backend_start)
    into v_ids, v_pids, v_starts
    from unnest(p_dispatchers, p_beats) as suspect (id, beat)
    join tally.dispatcher on dispatcher.id = suspect.id and dispatcher.beat = suspect.beat
    join pg_stat_activity as session on starts_with(session.application_name, format('tally:%s:', suspect.id))
    where dispatcher.stopped_at is null
        and session.datname = current_database()
        and session.usename = current_user
        and session.pid <> pg_backend_pid();

    begin
        -- Counted, not timed: the clock may step.
        for v_turn in 1 .. 25 loop
            perform pg_stat_clear_snapshot();
            perform pg_terminate_backend(session.pid)
            from unnest(v_pids, v_starts) as seen (pid, backend_start)
            join pg_stat_activity as session using (pid, backend_start);
            exit when not found;
            perform pg_sleep(0.01);
        end loop;
    exception
        when insufficient_privilege then
            null;
    end;

    perform pg_stat_clear_snapshot();
    return query
    select suspect.id
    from unnest(p_dispatchers) as suspect (id)
    where not exists (
            select from unnest(v_ids, v_pids, v_starts) as seen (dispatcher, pid, backend_start)
            join pg_stat_activity as session using (pid, backend_start)
            where seen.dispatcher = suspect.id
        )
        and tally.dispatcher_lock_key(suspect.id) not in (select held.key from tally.held_keys() as held);
end
$$;
