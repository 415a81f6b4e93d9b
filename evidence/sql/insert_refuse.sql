-- Refuses the row of each task whose input has a member `insert_refuse`, in those words.
-- Removed by drop_insert_refuse.sql.
create function tally.evidence_insert_refuse() returns trigger language plpgsql as $$
begin
    raise exception '%', new.input ->> 'insert_refuse';
end
$$;

create trigger evidence_insert_refuse
    before insert on tally.task
    for each row
    when (new.input ? 'insert_refuse')
    execute function tally.evidence_insert_refuse();
