-- Admission's one call: per submission, in order, the verdict and the id, token and document of its task; and the
-- revision of the kinds.
select submitted.verdict, submitted.id, submitted.row_token, submitted.document, submitted.revision
from tally.submit_tasks(
    %(queue)s, %(tokens)s::uuid[], %(kinds)s::text[], %(inputs)s::jsonb[], %(keys)s::text[], %(key_wait_ms)s, %(notify)s,
    false, %(retry_of)s::bigint[]
) as submitted
