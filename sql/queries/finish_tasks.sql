select finished.id, finished.verdict
from tally.finish_tasks(
    %(dispatcher)s, %(ids)s::bigint[], %(attempts)s::integer[], %(states)s::text[], %(results)s::jsonb[],
    %(errors)s::jsonb[], %(endings)s::text[]
) as finished
