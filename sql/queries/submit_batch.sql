-- A request's tasks submitted as a whole: per task, in the order given, the verdict, the id and token of its row, and
-- whether this request made that row; and the revision of the kinds. The tokens are made here: they are read before
-- COMMIT is sent, which is when they must be known. As text, which is only sent back, if at all.
select
    submitted.verdict, submitted.id, submitted.row_token::text, submitted.token = submitted.row_token,
    submitted.revision
from (
    select
        array_agg(gen_random_uuid()) as tokens,
        array_agg(task.kind) as kinds,
        array_agg(task.input) as inputs,
        array_agg(task.idempotency_key) as keys
    from (
        select given.kind, given.input, given.idempotency_key
        from rows from (
            jsonb_to_recordset(%(tasks)s::jsonb) as (kind text, input jsonb, idempotency_key text)
        ) with ordinality as given (kind, input, idempotency_key, ordinal)
        order by given.ordinal
    ) as task
) as request
cross join lateral tally.submit_tasks(
    %(queue)s, request.tokens, request.kinds, request.inputs, request.keys, %(key_wait_ms)s, %(notify)s, true, null
) as submitted
