-- Admission's one call: open a transaction as `begin` does, and write a batch in it. Per submission, in order: the
-- verdict and the id, token and document of its task.
-- One round trip: sent as a whole, with its parameters bound by the client; COMMIT is not part of it.
begin isolation level read committed;
select
    current_setting('transaction_read_only') = 'off' and not pg_is_in_recovery(),
    set_config('client_min_messages', 'warning', true),
    set_config('statement_timeout', %(statement_timeout)s, true),
    set_config('idle_in_transaction_session_timeout', %(statement_timeout)s, true);
select submitted.verdict, submitted.id, submitted.row_token, submitted.document
from tally.submit_tasks(
    %(queue)s, %(tokens)s::uuid[], %(kinds)s::text[], %(inputs)s::jsonb[], %(keys)s::text[], %(key_wait_ms)s, %(notify)s,
    false
) as submitted
-- Where nothing can be written, the function is not even called: no standby is asked what it remembers.
where current_setting('transaction_read_only') = 'off'
