select tally.publish_kinds(%(dispatcher)s, %(kinds)s::jsonb)
