-- The advisory keys (of one bigint) that sessions hold in this database. A read, for queries and functions of ours.
create or replace function tally.held_keys()
returns table (key bigint)
language sql
stable
as $$
    select pg_locks.classid::bigint << 32 | pg_locks.objid::bigint
    from pg_locks
    where pg_locks.locktype = 'advisory'
        and pg_locks.database = (select oid from pg_database where datname = current_database())
        and pg_locks.objsubid = 1
        and pg_locks.granted
$$;
