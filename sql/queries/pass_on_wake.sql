select tally.pass_on_wake(%(dispatcher)s, %(queue)s)
