select tally.fail_lost_tasks(%(dispatcher)s, %(ids)s::bigint[], %(attempts)s::integer[])
