-- How many seconds the service took over each tenth of the tasks, in the order they ended.
select extract(epoch from max(tenth.finished_at) - min(tenth.finished_at))::float8
from (select finished_at, ntile(10) over (order by finished_at) as number from tally.task where finished_at is not null) as tenth
group by tenth.number
order by tenth.number
