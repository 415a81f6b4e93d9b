-- A stored time as RFC 3339 text in UTC, whatever the session's time zone; null for null and for infinity.
create or replace function tally.utc_text(p_time timestamptz)
returns text
language sql
stable
as $$
    select case
        when isfinite(p_time) then to_char(p_time at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
    end
$$;
