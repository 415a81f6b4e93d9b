select tally.submit_task(
    %(kind)s::text, %(input)s::jsonb, %(queue)s::text, %(idempotency_key)s::text, %(priority)s::integer, %(notify)s
)
