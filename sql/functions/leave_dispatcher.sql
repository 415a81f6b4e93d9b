-- A dispatcher ends: only after this may its exit status be 0.
-- Called once its last outcome is acknowledged. Locks the dispatcher's row for update, a statement of its own
-- and first, so that no claim of it is under way when the rows are counted.
-- Asking again after leaving changes nothing. Raises TL410 when it was condemned or is unknown, TL411 while a
-- RUNNING row is left.
create or replace function tally.leave_dispatcher(p_dispatcher uuid)
returns void
language plpgsql
as $$
declare
    v_stopped_why text;
    v_left bigint;
begin
    select dispatcher.stopped_why into v_stopped_why
    from tally.dispatcher
    where dispatcher.id = p_dispatcher
    for update;
    if not found or v_stopped_why <> 'left' then
        raise exception 'dispatcher % is stopped or unknown', p_dispatcher using errcode = 'TL410';
    end if;

    select count(*) into v_left
    from tally.task
    where task.claimed_by = p_dispatcher and task.state = 'RUNNING';
    if v_left > 0 then
        raise exception 'dispatcher % still holds % tasks', p_dispatcher, v_left using errcode = 'TL411';
    end if;

    update tally.dispatcher
    set stopped_at = clock_timestamp(), stopped_why = 'left', trouble = null
    where dispatcher.id = p_dispatcher and dispatcher.stopped_at is null;
end
$$;
