-- Removes what finish_refuse.sql made; the trigger goes with its function.
drop function tally.evidence_finish_refuse() cascade;
