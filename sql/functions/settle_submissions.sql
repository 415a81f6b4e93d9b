-- Which tasks of a submission whose COMMIT was not answered are there? Called by the web process on a fresh
-- connection, in a transaction that it commits; the answer holds only once that commit is acknowledged.
-- Returns the ids that have a row with the token given. An id alone proves nothing: after a crash or failover
-- ids and transaction ids are handed out again.
-- Waits for the queue's advisory lock, which the first transaction holds until its end: afterwards it can change
-- nothing any more. Writes to the log, though no row, so that where standbys must confirm a commit they confirm this one too.
create or replace function tally.settle_submissions(p_queue text, p_ids bigint[], p_tokens uuid[])
returns table (id bigint)
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
begin
    perform pg_advisory_xact_lock(tally.queue_lock_key(p_queue));
    perform pg_logical_emit_message(true, 'tally', 'settled');

    return query
    select task.id
    from unnest(p_ids, p_tokens) as submitted (id, token)
    join tally.task on task.id = submitted.id and task.token = submitted.token;
end
$$;
