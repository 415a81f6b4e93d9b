-- Every dispatcher that has not stopped, but for the one that asks; `locked`: somebody holds its proof of life.
select
    dispatcher.id, dispatcher.beat, dispatcher.host, dispatcher.pid,
    dispatcher.boot_id, dispatcher.network_namespace,
    exists (
        select from pg_locks
        where pg_locks.locktype = 'advisory'
            and pg_locks.database = (select oid from pg_database where datname = current_database())
            and pg_locks.objsubid = 1
            and (pg_locks.classid::bigint << 32 | pg_locks.objid::bigint)
                = tally.dispatcher_lock_key(dispatcher.id)
    ) as locked
from tally.dispatcher
where dispatcher.stopped_at is null and dispatcher.id <> %(dispatcher)s
