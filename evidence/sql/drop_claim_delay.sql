-- Removes what claim_delay.sql made; the trigger goes with its function.
drop function tally.evidence_claim_delay() cascade;
