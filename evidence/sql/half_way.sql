-- Lets the transaction that writes a task wait once its rows are written, and before it is committed: for each task
-- whose input has a member `half_way`, at the state that it names, for `half_way_seconds`. Removed by
-- drop_half_way.sql.
create function tally.evidence_half_way() returns trigger language plpgsql as $$
begin
    perform pg_sleep((new.input ->> 'half_way_seconds')::double precision);
    return null;
end
$$;

-- After a row is after every row: such triggers wait for the end of the statement.
create trigger evidence_half_way
    after insert or update on tally.task
    for each row
    when (new.input ->> 'half_way' = new.state)
    execute function tally.evidence_half_way();
