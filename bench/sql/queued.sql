-- How many tasks are queued.
select count(*) from tally.task where state = 'QUEUED'
