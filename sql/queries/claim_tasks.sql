select claimed.id, claimed.attempt, claimed.kind, claimed.input, claimed.priority, claimed.position
from tally.claim_tasks(
    %(dispatcher)s, %(number)s, %(queue)s, %(free)s, %(after_positions)s::jsonb, %(excluded)s::bigint[],
    %(only)s::bigint[]
) as claimed
