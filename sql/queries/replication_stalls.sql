-- Has a web's commit been waiting for a standby for longer than a moment? A backend that does outlives its client.
select exists (
    select from pg_stat_activity
    where usename = current_user
        and datname = current_database()
        and starts_with(application_name, 'tally-web')
        and wait_event = 'SyncRep'
        and state_change < clock_timestamp() - interval '1 second'
)
