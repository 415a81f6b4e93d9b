-- Removes what text_finish_delay.sql made; the trigger goes with its function.
drop function tally.evidence_text_finish_delay() cascade;
