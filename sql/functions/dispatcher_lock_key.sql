-- The advisory key that a dispatcher's session holds as its proof of life.
create or replace function tally.dispatcher_lock_key(p_dispatcher uuid)
returns bigint
language sql
immutable
as $$
    select hashtextextended('tally:dispatcher:' || p_dispatcher, 0)
$$;
