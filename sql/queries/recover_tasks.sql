select recovered.id, recovered.state from tally.recover_tasks(%(dispatcher)s, %(only)s::bigint[]) as recovered
