select tally.beat_dispatcher(%(dispatcher)s, %(trouble)s)
