-- Admission's one call: token and document (null: overloaded) per submission, in order.
select submitted.token, submitted.document
from tally.submit_tasks(
    %(queue)s, %(tokens)s::uuid[], %(kinds)s::text[], %(inputs)s::jsonb[], %(notify)s
) as submitted
