select tally.remove_dispatchers(%(keep)s, %(limit)s)
