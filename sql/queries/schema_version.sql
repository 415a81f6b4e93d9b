-- The number of the last migration applied here; null when there is none.
select max(migration.version) from tally.migration
