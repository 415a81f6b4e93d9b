-- Queue so many tasks, past admission: what is measured is what becomes of them.
insert into tally.task (token, queue, kind, input)
select gen_random_uuid(), %(queue)s, %(kind)s, %(input)s::jsonb from generate_series(1, %(tasks)s)
