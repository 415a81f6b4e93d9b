-- Removes what claim_refuse.sql made; the trigger goes with its function.
drop function tally.evidence_claim_refuse() cascade;
