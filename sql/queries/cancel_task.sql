select tally.cancel_task(%(id)s, %(notify)s)
