select tally.refuse_claim(%(dispatcher)s, %(id)s, %(detail)s, %(attempt)s::integer)
