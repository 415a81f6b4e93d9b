-- Of the tasks above an id: the milliseconds from the making of each to its claim.
select (1000 * extract(epoch from started_at - created_at))::float8 from tally.task where id > %(id)s
