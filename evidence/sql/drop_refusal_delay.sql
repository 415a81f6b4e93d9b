-- Removes what refusal_delay.sql made; the trigger goes with its function.
drop function tally.evidence_refusal_delay() cascade;
