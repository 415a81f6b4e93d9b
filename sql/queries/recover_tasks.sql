select recovered.id, recovered.state
from tally.recover_tasks(%(holder)s, %(only)s::bigint[], %(dispatcher)s) as recovered
