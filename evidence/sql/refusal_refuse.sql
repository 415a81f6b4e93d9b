-- Refuses to write that a task could not be claimed, for each task whose input has a member `refusal_refuse`.
-- Removed by drop_refusal_refuse.sql.
create function tally.evidence_refusal_refuse() returns trigger language plpgsql as $$
begin
    raise exception '%', new.input ->> 'refusal_refuse';
end
$$;

create trigger evidence_refusal_refuse
    before update on tally.task
    for each row
    when (old.state = 'QUEUED' and new.state = 'FAILED' and new.input ? 'refusal_refuse')
    execute function tally.evidence_refusal_refuse();
