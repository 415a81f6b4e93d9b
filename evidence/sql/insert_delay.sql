-- Delays the row of each task whose input has a member `insert_delay`, by so many seconds.
-- Removed by drop_insert_delay.sql.
create function tally.evidence_insert_delay() returns trigger language plpgsql as $$
begin
    perform pg_sleep((new.input ->> 'insert_delay')::double precision);
    return new;
end
$$;

create trigger evidence_insert_delay
    before insert on tally.task
    for each row
    when (new.input ? 'insert_delay')
    execute function tally.evidence_insert_delay();
