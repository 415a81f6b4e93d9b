-- Delays the SUCCEEDED write of each task whose input has a member `finish_delay`, by so many seconds.
-- Removed by drop_finish_delay.sql.
create function tally.evidence_finish_delay() returns trigger language plpgsql as $$
begin
    perform pg_sleep((new.input ->> 'finish_delay')::double precision);
    return new;
end
$$;

create trigger evidence_finish_delay
    before update on tally.task
    for each row
    when (new.state = 'SUCCEEDED' and new.input ? 'finish_delay')
    execute function tally.evidence_finish_delay();
