-- Let tasks be claimed whose time has come: up to p_limit of a queue's get their own priority back, and a new position.
-- Called by the dispatcher's loop, at its sweep and when the next is due. Returns how many were released, and in how many
-- seconds the next one that waits is due: null where none waits; 0 or less where more are due, or one is that somebody
-- holds locked or that the database refuses to change, so only a call that released p_limit is worth repeating at once.
-- Locks the rows, skipping locked ones. Announces them, unless the notification queue fills up.
-- A row that a trigger or a constraint refuses keeps none of the others: then each is tried alone. One that takes all the
-- statement's time keeps them until the caller, who tried one known task at a time, leaves it out.
-- p_excluded are ids to pass over; p_only, where not null, are the only ids to release.
create or replace function tally.release_due_tasks(
    p_queue text,
    p_limit integer,
    p_excluded bigint[] default '{}',
    p_only bigint[] default null
)
returns table (released bigint, next_seconds double precision)
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
set jit = off
as $$
declare
    v_now constant bigint := extract(epoch from clock_timestamp()) * 1000000;
    v_due bigint[];
    v_nth integer := 1;
    v_at_once integer;
    v_released bigint;
    v_first bigint;
    v_lowest bigint;
begin
    released := 0;

    -- The privilege to write is asked for here, outside the block that takes an error for a row's.
    select array_agg(due.id order by due.position) into v_due
    from (
        select task.id, task.position
        from tally.task
        where task.queue = p_queue and task.state = 'QUEUED' and task.priority = 32767 and task.position <= v_now
            and task.id <> all (p_excluded)
            and (p_only is null or task.id = any (p_only))
        order by task.position
        limit p_limit
        for update skip locked
    ) as due;

    v_at_once := cardinality(v_due);
    while v_nth <= cardinality(v_due) loop
        begin
            with made as (
                update tally.task
                set priority = task.due_priority,
                    position = nextval('tally.task_position'),
                    due_at = null,
                    due_priority = null
                from unnest(v_due[v_nth:v_nth + v_at_once - 1]) as due (id)
                where task.id = due.id
                returning task.position
            )
            select count(*), min(made.position) into v_released, v_first from made;
            released := released + v_released;
            v_lowest := coalesce(v_lowest, v_first);
            v_nth := v_nth + v_at_once;
        exception
            when others then
                if v_at_once = 1 then
                    v_nth := v_nth + 1;
                end if;
                v_at_once := 1;
        end;
    end loop;
    if released > 0 and pg_notification_queue_usage() < 0.5 then
        perform tally.announce_tasks(p_queue, released, v_lowest);
    end if;

    select extract(epoch from (task.due_at - clock_timestamp())) into next_seconds
    from tally.task
    where task.queue = p_queue and task.state = 'QUEUED' and task.priority = 32767
    order by task.position
    limit 1;
    return next;
end
$$;
