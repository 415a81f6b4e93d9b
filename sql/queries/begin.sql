-- Open a transaction that says its isolation level and its timeouts itself, since the session may not be ours alone.
-- One round trip: sent as a whole, with its parameters bound by the client.
begin isolation level read committed;
select
    set_config('statement_timeout', %(statement_timeout)s, true),
    set_config('idle_in_transaction_session_timeout', %(statement_timeout)s, true)
