-- Removes what insert_refuse.sql made; the trigger goes with its function.
drop function tally.evidence_insert_refuse() cascade;
