-- The beginning of a session's query, for people: on one line, without the comments that it opens with, at most 200
-- characters.
create or replace function tally.query_excerpt(p_query text)
returns text
language sql
immutable
as $$
    select left(btrim(regexp_replace(regexp_replace(p_query, '^(\s*--[^\n]*(\n|$))+', ''), '\s+', ' ', 'g')), 200)
$$;
