-- What becomes of the tasks of a dispatcher that is stopped, or of which there is no row:
-- RUNNING -> FAILED, or CANCELED where a cancel was accepted, or back to QUEUED where the kind is to run again after a crash
-- and has an attempt left (requeue_tasks). Returns what was written.
-- error.detail tells who held it, since when, the holder's last beat, the proof, and who judged: p_judge, where the
-- holder was not condemned (then its proof tells).
-- Called by condemn_dispatcher, and by every judge at every look for rows that an earlier look found locked.
-- p_only, where not null, are the only ids to write: a row that cannot be written must not keep the others.
-- Refuses (writes nothing) while the dispatcher is there and not stopped: its row is locked for key share,
-- first, so it cannot be unstopped or still be on its way in. Locks the tasks' rows, skipping locked ones. Waits for
-- a lock no longer than a quarter of a second (55P03).
create or replace function tally.recover_tasks(p_dispatcher uuid, p_only bigint[], p_judge uuid)
returns table (id bigint, state text)
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
set lock_timeout = '250ms'
as $$
declare
    v_holder tally.dispatcher;
    v_reason text;
    v_evidence text;
    v_locked bigint[];
    v_attempts integer[];
    v_errors jsonb[];
begin
    select * into v_holder from tally.dispatcher where dispatcher.id = p_dispatcher for key share;
    if found and v_holder.stopped_at is null then
        return;
    end if;

    if v_holder.stopped_why = 'exited' then
        v_reason := 'process exited before worker completion';
    else
        v_reason := 'dispatcher lost before worker completion';
    end if;
    if v_holder.id is null then
        v_evidence := 'the database knows nothing of it';
    else
        v_evidence := format(
            'process %s on %s, started %s, last beat %s at %s',
            v_holder.pid, v_holder.host, tally.utc_text(v_holder.started_at),
            v_holder.beat, tally.utc_text(v_holder.beaten_at)
        );
    end if;
    v_evidence := concat_ws(
        '; ',
        v_evidence,
        case when v_holder.stopped_why = 'left' then 'it had left' end,
        coalesce(v_holder.stopped_proof, 'judged by dispatcher ' || p_judge)
    );

    select array_agg(locked.id), array_agg(locked.attempt), array_agg(locked.error)
    into v_locked, v_attempts, v_errors
    from (
        select
            task.id, task.attempt,
            jsonb_build_object(
                'reason', case when task.cancel_requested_at is null then v_reason else 'canceled' end,
                'detail',
                case when task.cancel_requested_at is null then '' else v_reason || '; ' end
                || format(
                    'held by dispatcher %s since %s (claim %s, attempt %s): %s',
                    task.claimed_by, tally.utc_text(task.started_at), task.claim_number, task.attempt, v_evidence
                )
            ) as error
        from tally.task
        where task.claimed_by = p_dispatcher
            and task.state = 'RUNNING'
            and (p_only is null or task.id = any (p_only))
        order by task.id
        for update skip locked
    ) as locked;

    return query
    select requeued.id, 'QUEUED'
    from tally.requeue_tasks(p_dispatcher, v_locked, v_attempts, v_errors, null, true) as requeued;

    return query
    update tally.task
    set state = case when task.cancel_requested_at is null then 'FAILED' else 'CANCELED' end,
        error = locked.error,
        finished_at = clock_timestamp()
    from unnest(v_locked, v_errors) as locked (id, error)
    where task.id = locked.id
        -- Those that are QUEUED again have no claim.
        and task.claim_number is not null
    returning task.id, task.state;
end
$$;

-- What dispatchers of the version before call.
create or replace function tally.recover_tasks(p_dispatcher uuid, p_only bigint[] default null)
returns table (id bigint, state text)
language sql
as $$
    select recovered.id, recovered.state from tally.recover_tasks(p_dispatcher, p_only, null) as recovered
$$;
