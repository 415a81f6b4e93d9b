select tally.end_backends(%(prefix)s)
