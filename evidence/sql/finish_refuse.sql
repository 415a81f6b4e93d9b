-- Refuses the terminal write of each task whose input has a member `finish_refuse`, in those words.
-- Removed by drop_finish_refuse.sql.
create function tally.evidence_finish_refuse() returns trigger language plpgsql as $$
begin
    raise exception '%', new.input ->> 'finish_refuse';
end
$$;

create trigger evidence_finish_refuse
    before update on tally.task
    for each row
    when (old.state = 'RUNNING' and new.state <> 'RUNNING' and new.input ? 'finish_refuse')
    execute function tally.evidence_finish_refuse();
