-- The attempts of a task that ended and were followed by another, as its representation has them: members of a JSON
-- list, without the dispatchers that they are kept under. Called by task_document. Locks nothing, raises nothing.
create or replace function tally.earlier_attempts(p_attempts jsonb)
returns text
language sql
immutable
as $$
    select string_agg(
        concat(
            '{"attempt":', ended.entry -> 'attempt',
            ',"started_at":', ended.entry -> 'started_at',
            ',"finished_at":', ended.entry -> 'finished_at',
            ',"error":', ended.entry -> 'error',
            '}'
        ),
        ',' order by ended.ordinal
    )
    from jsonb_array_elements(p_attempts) with ordinality as ended (entry, ordinal)
$$;
