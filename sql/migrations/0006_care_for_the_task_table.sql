-- How tally.task is vacuumed: once a twentieth of it is dead, and not a fifth; and without giving the end of the file back,
-- for which a vacuum locks everybody out (50 ms for 82 MB). What was removed makes room for what comes. Measured in
-- docs/decisions/0018-retention.md, with what was left as PostgreSQL has it.
-- Locks tally.task against changes of its definition and against a vacuum, not against traffic.
alter table tally.task set (
    autovacuum_vacuum_scale_factor = 0.05,
    vacuum_truncate = off,
    toast.vacuum_truncate = off
);

update tally.migration set serves = 2 where version = 6;
