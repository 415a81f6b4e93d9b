-- How many tasks are open.
select tally.open_count('default')
