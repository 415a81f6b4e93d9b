-- Removes what commit_delay.sql made; the trigger goes with its function.
drop function tally.evidence_commit_delay() cascade;
