-- A batch, in a transaction that is open already; the web opens its own in the same round trip (admit_tasks).
select submitted.verdict, submitted.id, submitted.row_token, submitted.document
from tally.submit_tasks(
    %(queue)s, %(tokens)s::uuid[], %(kinds)s::text[], %(inputs)s::jsonb[], %(keys)s::text[], %(key_wait_ms)s, %(notify)s, false
) as submitted
