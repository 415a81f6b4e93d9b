-- Removes what insert_disk_full.sql made; the trigger goes with its function.
drop function tally.evidence_insert_disk_full() cascade;
