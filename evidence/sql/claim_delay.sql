-- Delays the claim of each task whose input has a member `claim_delay`, by so many seconds.
-- Removed by drop_claim_delay.sql.
create function tally.evidence_claim_delay() returns trigger language plpgsql as $$
begin
    perform pg_sleep((new.input ->> 'claim_delay')::double precision);
    return new;
end
$$;

create trigger evidence_claim_delay
    before update on tally.task
    for each row
    when (old.state = 'QUEUED' and new.state = 'RUNNING' and new.input ? 'claim_delay')
    execute function tally.evidence_claim_delay();
