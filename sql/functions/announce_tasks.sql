-- Tell, at the commit of the calling transaction, that a queue has so many new tasks, none of a lower position than
-- p_position: as many waiting dispatchers are woken by name; where none is known to wait, all, on tally_work.
-- Called by submit_tasks and pass_on_wake. Locks nothing.
create or replace function tally.announce_tasks(p_queue text, p_tasks bigint, p_position bigint, p_except uuid default null)
returns bigint
language plpgsql
as $$
declare
    v_woken constant bigint := tally.wake_dispatchers(p_queue, p_tasks, p_position, p_except);
begin
    if v_woken = 0 then
        perform pg_notify('tally_work', json_build_object('queue', p_queue, 'position', p_position)::text);
    end if;
    return v_woken;
end
$$;
