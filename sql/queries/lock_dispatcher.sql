-- Take, for as long as this session lives, the advisory lock that proves a dispatcher alive; false when held.
select pg_try_advisory_lock(tally.dispatcher_lock_key(%(dispatcher)s))
