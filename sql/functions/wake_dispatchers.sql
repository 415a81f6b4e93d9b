-- Wake, at the commit of the calling transaction, as many waiting dispatchers of a queue as there are tasks for, by name:
-- those that have beaten last, so one that is dead or cut off drops out within a beat. Returns how many.
-- p_position is a hint, no task that they are woken for has a lower one; null: nothing is known. p_except is not woken.
-- Called by announce_tasks, claim_tasks and pass_on_wake. Locks nothing: it only gives a hint, and each dispatcher's
-- sweep finds what a hint missed. A dispatcher that has just begun to wait looks once more after saying so, so a task
-- committed while nobody was seen waiting is seen by it.
drop function if exists tally.wake_dispatchers(text, bigint, uuid);
create or replace function tally.wake_dispatchers(p_queue text, p_tasks bigint, p_position bigint, p_except uuid)
returns bigint
language plpgsql
as $$
declare
    v_woken bigint;
begin
    -- Planned once a session, which a function in SQL would be at every call.
    select count(pg_notify(tally.work_channel(chosen.id), coalesce(p_position::text, '')))
    into v_woken
    from (
        select dispatcher.id
        from tally.dispatcher
        where dispatcher.queue = p_queue
            and dispatcher.stopped_at is null
            and dispatcher.waiting
            and dispatcher.trouble is null
            and dispatcher.id is distinct from p_except
        order by dispatcher.beaten_at desc
        limit p_tasks
    ) as chosen;
    return v_woken;
end
$$;
