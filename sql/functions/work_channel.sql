-- The channel that wakes one dispatcher, by name. Everybody listens to tally_work besides.
create or replace function tally.work_channel(p_dispatcher uuid)
returns text
language sql
immutable
as $$ select 'tally_work:' || p_dispatcher $$;
