-- A claim was refused by the database for this very task: QUEUED -> FAILED, its body never started.
-- Called by the dispatcher's outcomes, with the terminal write's patience. Locks the dispatcher's row for key
-- share and then the task's row. Writes only while the task is still QUEUED, and p_attempt, where not null, is the last it
-- had when its claim was refused: one that was claimed since, and is QUEUED for another attempt, is not what was refused.
-- Raises TL410 when the dispatcher is stopped or unknown, TL404 when there is no such task, TL409 when it is
-- terminal, TL413 when somebody claimed it after all.
create or replace function tally.refuse_claim(p_dispatcher uuid, p_id bigint, p_detail text, p_attempt integer)
returns void
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_state text;
    v_attempt integer;
    v_due_at timestamptz;
begin
    perform from tally.dispatcher
    where dispatcher.id = p_dispatcher and dispatcher.stopped_at is null
    for key share;
    if not found then
        raise exception 'dispatcher % is stopped or unknown', p_dispatcher using errcode = 'TL410';
    end if;

    select task.state, task.attempt, task.due_at into v_state, v_attempt, v_due_at
    from tally.task
    where task.id = p_id
    for update;
    if not found then
        raise exception 'there is no task %', p_id using errcode = 'TL404';
    elsif v_state = 'RUNNING' or (v_state = 'QUEUED' and (v_due_at is not null or v_attempt <> p_attempt)) then
        raise exception 'task % was claimed after all', p_id using errcode = 'TL413';
    elsif v_state <> 'QUEUED' then
        raise exception 'task % is already %', p_id, v_state using errcode = 'TL409';
    end if;

    update tally.task
    set state = 'FAILED',
        error = jsonb_build_object('reason', 'worker could not claim task', 'detail', p_detail),
        finished_at = clock_timestamp()
    where task.id = p_id;
end
$$;

-- What dispatchers of the version before call.
create or replace function tally.refuse_claim(p_dispatcher uuid, p_id bigint, p_detail text)
returns void
language sql
as $$
    select tally.refuse_claim(p_dispatcher, p_id, p_detail, null)
$$;
