-- Open a transaction that says its isolation level and its timeouts itself, since the session may not be ours alone.
-- Can it write, too? A session may have come to a standby, by an address that moved.
-- One round trip: sent as a whole, with its parameters bound by the client.
begin isolation level read committed;
select
    current_setting('transaction_read_only') = 'off' and not pg_is_in_recovery(),
    set_config('client_min_messages', 'warning', true),
    set_config('statement_timeout', %(statement_timeout)s, true),
    set_config('idle_in_transaction_session_timeout', %(statement_timeout)s, true)
