-- Delays the COMMIT of each submit of a task whose input has a member `commit_delay`, by so many seconds: a deferred
-- trigger runs inside it. Removed by drop_commit_delay.sql.
create function tally.evidence_commit_delay() returns trigger language plpgsql as $$
begin
    perform pg_sleep((new.input ->> 'commit_delay')::double precision);
    return null;
end
$$;

create constraint trigger evidence_commit_delay
    after insert on tally.task
    deferrable initially deferred
    for each row
    when (new.input ? 'commit_delay')
    execute function tally.evidence_commit_delay();
