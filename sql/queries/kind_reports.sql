-- What the dispatchers have published of their kinds, the last of them first.
select
    kind.kind, kind.queue, kind.slot, kind.time_limit_seconds, kind.max_attempts, kind.on_crash,
    kind.input_schema is not null as checked, kind.published_at
from tally.kind
order by kind.revision desc
