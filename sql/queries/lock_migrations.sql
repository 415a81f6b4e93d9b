-- One migration at a time, until the end of this transaction; also before the schema exists.
select pg_advisory_xact_lock(hashtextextended('tally:migrate', 0))
