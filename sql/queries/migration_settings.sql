-- A migration waits for its turn and works as long as it takes; function bodies are checked when they run, since
-- functions call one another and are replaced in the order of their file names.
select
    set_config('statement_timeout', '0', true),
    set_config('lock_timeout', '0', true),
    set_config('idle_in_transaction_session_timeout', '0', true),
    set_config('check_function_bodies', 'off', true)
