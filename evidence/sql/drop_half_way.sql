-- Removes what half_way.sql made; the trigger goes with its function.
drop function tally.evidence_half_way() cascade;
