select claimed.id, claimed.attempt, claimed.kind, claimed.input, claimed.priority, claimed.position
from tally.settle_claim(%(dispatcher)s, %(number)s) as claimed
