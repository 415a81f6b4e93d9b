-- Refuses the row of each task whose input has a member `insert_disk_full`, as a server does whose disk is full.
-- Removed by drop_insert_disk_full.sql.
create function tally.evidence_insert_disk_full() returns trigger language plpgsql as $$
begin
    raise exception 'could not extend file: No space left on device' using errcode = 'disk_full';
end
$$;

create trigger evidence_insert_disk_full
    before insert on tally.task
    for each row
    when (new.input ? 'insert_disk_full')
    execute function tally.evidence_insert_disk_full();
