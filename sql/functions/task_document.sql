-- The representation of a task, as JSON text: the same bytes for every reader, whatever the row holds.
-- Called by every statement that answers a client. Locks nothing, raises nothing.
-- One expression, so that the planner takes it into the calling statement: as a subquery it cost 0.2 ms a call.
create or replace function tally.task_document(p_task tally.task)
returns text
language sql
stable
as $$
    select concat(
        '{"id":', p_task.id,
        ',"kind":', to_json(p_task.kind),
        ',"queue":', to_json(p_task.queue),
        ',"state":', to_json(p_task.state),
        ',"cancel_requested":', to_json(p_task.cancel_requested_at is not null),
        ',"attempt":', p_task.attempt,
        ',"input":', p_task.input,
        ',"result":', coalesce(p_task.result::text, 'null'),
        ',"error":', coalesce(p_task.error::text, 'null'),
        ',"created_at":', coalesce(to_json(tally.utc_text(p_task.created_at))::text, 'null'),
        ',"started_at":', coalesce(to_json(tally.utc_text(p_task.started_at))::text, 'null'),
        ',"finished_at":', coalesce(to_json(tally.utc_text(p_task.finished_at))::text, 'null'),
        ',"due_at":', coalesce(to_json(tally.utc_text(p_task.due_at))::text, 'null'),
        ',"retry_of":', coalesce(p_task.retry_of::text, 'null'),
        ',"attempts":[',
        concat_ws(
            ',',
            case when p_task.attempts is not null then tally.earlier_attempts(p_task.attempts) end,
            -- The one that ended the task, if that had begun.
            case
                when p_task.started_at is not null and p_task.finished_at is not null then concat(
                    '{"attempt":', p_task.attempt,
                    ',"started_at":', to_json(tally.utc_text(p_task.started_at)),
                    ',"finished_at":', to_json(tally.utc_text(p_task.finished_at)),
                    ',"error":', coalesce(p_task.error::text, 'null'),
                    '}'
                )
            end
        ),
        ']}'
    )
$$;
