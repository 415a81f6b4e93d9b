-- Does PgQueuer hold a job that has not ended? Looked for from the end, as in our own case.
select exists (select from pgqueuer where status in ('queued', 'picked') order by id desc limit 1)
