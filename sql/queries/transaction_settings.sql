-- What each of our transactions says of itself where the session is not ours alone (a pooler may share it).
select
    set_config('statement_timeout', %(statement_timeout)s, true),
    set_config('idle_in_transaction_session_timeout', %(statement_timeout)s, true)
