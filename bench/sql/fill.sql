-- Queue so many no-op tasks, past admission: what is measured is what becomes of them.
insert into tally.task (token, queue, kind, input)
select gen_random_uuid(), 'default', 'noop', '{}' from generate_series(1, %(tasks)s)
