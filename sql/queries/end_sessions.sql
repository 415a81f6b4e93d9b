select ended.id from tally.end_sessions(%(dispatchers)s, %(beats)s::bigint[]) as ended
