-- Removes what refusal_refuse.sql made; the trigger goes with its function.
drop function tally.evidence_refusal_refuse() cascade;
