-- Let the calling session hear what concerns a dispatcher: tally_work and a channel of its own say that a queue has
-- new tasks, tally_cancel that a RUNNING task's cancel was accepted.
-- Called by the dispatcher's session after every connect; in force from its commit on.
create or replace function tally.listen_dispatcher(p_dispatcher uuid)
returns void
language plpgsql
as $$
begin
    listen tally_work;
    listen tally_cancel;
    execute format('listen %I', tally.work_channel(p_dispatcher));
end
$$;
