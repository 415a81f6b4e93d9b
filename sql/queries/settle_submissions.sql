select settled.id from tally.settle_submissions(%(queue)s, %(ids)s::bigint[], %(tokens)s::uuid[]) as settled
