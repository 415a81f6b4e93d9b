-- Removes what finish_delay.sql made; the trigger goes with its function.
drop function tally.evidence_finish_delay() cascade;
