select recovered.id, recovered.state from tally.recover_tasks(%(dispatcher)s) as recovered
