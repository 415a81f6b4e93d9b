-- How many tasks have ended within the last so many seconds.
select count(*) from tally.task where finished_at > clock_timestamp() - make_interval(secs => %(seconds)s)
