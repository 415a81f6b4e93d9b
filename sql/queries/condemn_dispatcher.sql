select recovered.id, recovered.state
from tally.condemn_dispatcher(
    %(dispatcher)s, %(beat)s, %(why)s, %(proof)s, %(only)s::bigint[]
) as recovered
