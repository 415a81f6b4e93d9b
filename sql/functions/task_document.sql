-- The representation of a task, as JSON text: the same bytes for every reader, whatever the row holds.
-- Called by every statement that answers a client. Locks nothing, raises nothing.
create or replace function tally.task_document(p_task tally.task)
returns text
language sql
stable
as $$
    select row_to_json(document)::text
    from (
        select
            p_task.id as id,
            p_task.kind as kind,
            p_task.queue as queue,
            p_task.state as state,
            p_task.cancel_requested_at is not null as cancel_requested,
            p_task.attempt as attempt,
            p_task.input as input,
            p_task.result as result,
            p_task.error as error,
            tally.utc_text(p_task.created_at) as created_at,
            tally.utc_text(p_task.started_at) as started_at,
            tally.utc_text(p_task.finished_at) as finished_at
    ) as document
$$;
