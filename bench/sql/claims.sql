-- How often tasks were claimed, or looked for, since the database was made; needs track_functions = pl.
select coalesce(sum(calls), 0) from pg_stat_user_functions where schemaname = 'tally' and funcname = 'claim_tasks'
