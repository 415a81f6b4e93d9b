-- A dispatcher that was woken and can take nothing now (its slots are full, or it drains) lets others be woken
-- instead, if there is anything to take, and is no more woken by name until a claim of its own leaves slots free.
-- Called by the dispatcher's loop. Locks the dispatcher's row for no key update. Returns how many were woken by name;
-- where none is known to wait all are woken: somebody may be about to wait, or be of an earlier program.
create or replace function tally.pass_on_wake(p_dispatcher uuid, p_queue text)
returns bigint
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
begin
    update tally.dispatcher set waiting = false where dispatcher.id = p_dispatcher and dispatcher.waiting;
    -- At 32767 are those whose time is still to come.
    if not exists (
        select from tally.task where task.queue = p_queue and task.state = 'QUEUED' and task.priority < 32767
    ) then
        return 0;
    end if;
    return tally.announce_tasks(p_queue, 1, 0, p_dispatcher);
end
$$;
