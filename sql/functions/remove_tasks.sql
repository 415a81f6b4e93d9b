-- Remove those of p_ids that ended longer than p_keep ago, by the database's clock. A terminal row never changes, so
-- nothing is lost but the answer to who asks for it later; its idempotency key is free again.
-- Called by the one dispatcher that holds the lock of hold_retention.sql, a small batch at a time.
-- Returns a verdict per row: removed; kept (somebody holds it locked, it is not that old or not ended, a trigger keeps
-- it, or it is gone); refused: and why, in the database's words. A row that is refused keeps none of the others: the
-- batch is tried again by halves.
-- Locks the rows, in order of id, skipping locked ones. Raises only what is not one row's: a missing privilege, a
-- statement that takes too long.
create or replace function tally.remove_tasks(p_ids bigint[], p_keep interval)
returns table (id bigint, verdict text)
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
    v_half constant integer := cardinality(p_ids) / 2;
    v_removed bigint[];
begin
    -- The privilege is checked here, outside the block that takes an error for a row's.
    delete from tally.task where false;
    begin
        with locked as (
            select task.id
            from tally.task
            where task.id = any (p_ids) and task.finished_at < clock_timestamp() - p_keep
            order by task.id
            for update skip locked
        ),
        removed as (
            delete from tally.task using locked where task.id = locked.id returning task.id
        )
        select array_agg(removed.id) into v_removed from removed;
    exception
        when others then
            if v_half = 0 then
                return query select p_ids[1], 'refused: ' || sqlerrm;
            else
                return query select * from tally.remove_tasks(p_ids[:v_half], p_keep);
                return query select * from tally.remove_tasks(p_ids[v_half + 1:], p_keep);
            end if;
            return;
    end;

    return query
    select given.id, case when given.id = any (v_removed) then 'removed' else 'kept' end
    from unnest(p_ids) as given (id);
end
$$;
