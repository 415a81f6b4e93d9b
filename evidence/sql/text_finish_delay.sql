-- Delays the SUCCEEDED write of every text by a minute, in a backend that does not look whether its client is gone.
-- Removed by drop_text_finish_delay.sql.
create function tally.evidence_text_finish_delay() returns trigger language plpgsql as $$
begin
    perform set_config('client_connection_check_interval', '0', true);
    perform pg_sleep(60);
    return new;
end
$$;

create trigger evidence_text_finish_delay
    before update on tally.task
    for each row
    when (new.state = 'SUCCEEDED' and new.kind = 'text.stats')
    execute function tally.evidence_text_finish_delay();
