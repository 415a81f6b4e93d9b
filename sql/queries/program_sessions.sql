-- How many sessions our programs have on this server, this one not counted.
select count(*)
from pg_stat_activity
where application_name like 'tally%' and pid <> pg_backend_pid()
