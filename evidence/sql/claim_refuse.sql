-- Refuses the claim of each task whose input has a member `claim_refuse`, in those words.
-- Removed by drop_claim_refuse.sql.
create function tally.evidence_claim_refuse() returns trigger language plpgsql as $$
begin
    raise exception '%', new.input ->> 'claim_refuse';
end
$$;

create trigger evidence_claim_refuse
    before update on tally.task
    for each row
    when (old.state = 'QUEUED' and new.state = 'RUNNING' and new.input ? 'claim_refuse')
    execute function tally.evidence_claim_refuse();
