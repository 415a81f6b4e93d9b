-- A dispatcher says that it lives, and what troubles it (null: nothing). Returns the new beat.
-- Called by the dispatcher's session every beat period, to the end of its drain. Locks the dispatcher's row
-- for no key update, which lets claims go on. Raises TL410 once the dispatcher is stopped, or unknown here.
create or replace function tally.beat_dispatcher(p_dispatcher uuid, p_trouble text)
returns bigint
language plpgsql
as $$
declare
    v_beat bigint;
begin
    update tally.dispatcher
    set beat = dispatcher.beat + 1, beaten_at = clock_timestamp(), trouble = p_trouble
    where dispatcher.id = p_dispatcher and dispatcher.stopped_at is null
    returning dispatcher.beat into v_beat;
    if not found then
        raise exception 'dispatcher % is stopped or unknown', p_dispatcher using errcode = 'TL410';
    end if;
    return v_beat;
end
$$;
