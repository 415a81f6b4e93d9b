-- Is this session the one that removes what is old? It is from the first call that says so to the session's end; until
-- then no other is. A session takes its own lock again at every call.
select pg_try_advisory_lock(hashtextextended('tally:retention', 0))
