-- A dispatcher says what it declares of its kinds: p_kinds is an array of objects with the columns of tally.kind.
-- Called by the dispatcher's session right after register_dispatcher; what it says again changes nothing. Where two
-- differ, the last one counts. Makes the queues that are missing. Returns the highest revision there is, 0 without kinds.
-- One at a time, by an advisory lock that is held to the transaction's end, so that who sees a revision sees all lower ones.
-- Writes only the rows that differ, each under a revision higher than any before. Raises what a constraint says of a row.
create or replace function tally.publish_kinds(p_dispatcher uuid, p_kinds jsonb)
returns bigint
language plpgsql
as $$
begin
    perform pg_advisory_xact_lock(hashtextextended('tally:kinds', 0));

    insert into tally.queue (name)
    select distinct published.queue from jsonb_to_recordset(p_kinds) as published (queue text)
    on conflict (name) do nothing;

    with published as (
        select *
        from jsonb_to_recordset(p_kinds) as given (
            kind text, queue text, input_schema jsonb, slot text, time_limit_seconds double precision,
            max_attempts integer, on_crash text, backoff_first_seconds double precision,
            backoff_factor double precision, backoff_cap_seconds double precision
        )
        except
        select
            kind.kind, kind.queue, kind.input_schema, kind.slot, kind.time_limit_seconds,
            kind.max_attempts, kind.on_crash, kind.backoff_first_seconds,
            kind.backoff_factor, kind.backoff_cap_seconds
        from tally.kind
    )
    insert into tally.kind (
        kind, queue, input_schema, slot, time_limit_seconds,
        max_attempts, on_crash, backoff_first_seconds,
        backoff_factor, backoff_cap_seconds, revision, published_by
    )
    select
        published.*,
        -- Of a sequence: a row that somebody removes takes its revision with it, which webs may still know.
        nextval('tally.kind_revision'),
        p_dispatcher
    from (select * from published order by published.kind) as published
    on conflict (kind) do update set
        queue = excluded.queue,
        input_schema = excluded.input_schema,
        slot = excluded.slot,
        time_limit_seconds = excluded.time_limit_seconds,
        max_attempts = excluded.max_attempts,
        on_crash = excluded.on_crash,
        backoff_first_seconds = excluded.backoff_first_seconds,
        backoff_factor = excluded.backoff_factor,
        backoff_cap_seconds = excluded.backoff_cap_seconds,
        revision = excluded.revision,
        published_at = excluded.published_at,
        published_by = excluded.published_by;

    return (select coalesce(max(kind.revision), 0) from tally.kind);
end
$$;
