-- The migration that a program must know, at least, to work on this schema.
select max(coalesce(migration.serves, migration.version)) from tally.migration
