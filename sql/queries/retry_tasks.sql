select retried.id, retried.verdict, retried.state, retried.due_seconds
from tally.retry_tasks(
    %(dispatcher)s, %(ids)s::bigint[], %(attempts)s::integer[], %(errors)s::jsonb[], %(endings)s::text[],
    %(delays)s::double precision[]
) as retried
