select tally.leave_dispatcher(%(dispatcher)s)
