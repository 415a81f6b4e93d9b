select due.released, due.next_seconds
from tally.release_due_tasks(%(queue)s, %(limit)s::integer, %(excluded)s::bigint[], %(only)s::bigint[]) as due
