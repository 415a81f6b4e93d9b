-- Delays writing that a task could not be claimed, for each task whose input has a member `refusal_delay`, by so many
-- seconds. Removed by drop_refusal_delay.sql.
create function tally.evidence_refusal_delay() returns trigger language plpgsql as $$
begin
    perform pg_sleep((new.input ->> 'refusal_delay')::double precision);
    return new;
end
$$;

create trigger evidence_refusal_delay
    before update on tally.task
    for each row
    when (old.state = 'QUEUED' and new.state = 'FAILED' and new.input ? 'refusal_delay')
    execute function tally.evidence_refusal_delay();
