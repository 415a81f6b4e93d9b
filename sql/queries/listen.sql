select tally.listen_dispatcher(%(dispatcher)s)
