-- One migration at a time, until the end of this transaction; also before the schema exists. Nothing else is held
-- by who waits here.
select pg_advisory_xact_lock(hashtextextended('tally:migrate', 0))
