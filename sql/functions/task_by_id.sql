-- The document of one task; no row when there is none. Called by the web process. Locks nothing.
-- A function, so that it is planned once a session: to plan the document's expression costs more than all the rest.
create or replace function tally.task_by_id(p_id bigint)
returns setof text
language plpgsql
stable
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
begin
    return query select tally.task_document(task) from tally.task where task.id = p_id;
end
$$;
