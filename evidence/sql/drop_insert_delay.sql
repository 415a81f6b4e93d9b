-- Removes what insert_delay.sql made; the trigger goes with its function.
drop function tally.evidence_insert_delay() cascade;
