-- Does graphile-worker hold a job? Those that ended are deleted. Looked for from the end, as in our own case.
select exists (select from graphile_worker._private_jobs order by id desc limit 1)
