-- A judge stops another dispatcher and writes what becomes of its tasks, in one transaction.
-- p_beat is the beat that the judge watched: a dispatcher that beat since is not dead. p_why is 'exited' (its
-- process is proven gone) or 'lost' (no such proof); p_proof tells the evidence and who judged.
-- Locks the dispatcher's row for update, a statement of its own and first: a claim under way ends before the
-- rows are read, and a later one is refused. Then the tasks' rows, skipping locked ones (recover_tasks). Waits for
-- a lock no longer than a quarter of a second: a judge has others to look at, and comes back.
-- p_only, where not null, are the only tasks to write now; the others are recovered at later looks.
-- Returns what was written. A dispatcher that is stopped already keeps its reason; its rows are recovered.
-- Raises TL404 when there is no such dispatcher, TL414 when its beat moved, 55P03 when its row stays locked.
create or replace function tally.condemn_dispatcher(
    p_dispatcher uuid,
    p_beat bigint,
    p_why text,
    p_proof text,
    p_only bigint[] default null
)
returns table (id bigint, state text)
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set lock_timeout = '250ms'
as $$
declare
    v_beat bigint;
    v_stopped_at timestamptz;
begin
    select dispatcher.beat, dispatcher.stopped_at into v_beat, v_stopped_at
    from tally.dispatcher
    where dispatcher.id = p_dispatcher
    for update;
    if not found then
        raise exception 'there is no dispatcher %', p_dispatcher using errcode = 'TL404';
    end if;
    if v_stopped_at is null then
        if v_beat <> p_beat then
            raise exception 'dispatcher % beat again: % was watched, it is at %', p_dispatcher, p_beat, v_beat
                using errcode = 'TL414';
        end if;
        update tally.dispatcher
        set stopped_at = clock_timestamp(), stopped_why = p_why, stopped_proof = p_proof
        where dispatcher.id = p_dispatcher;
    end if;

    return query select * from tally.recover_tasks(p_dispatcher, p_only, null);
end
$$;
