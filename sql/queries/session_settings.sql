-- What a direct session says of itself once, after connecting: no start-up parameter a pooler could refuse.
-- A backend whose client is gone notices within a second, where the server has that setting.
-- Sets nothing, and returns no row, in a backend other than the one that greeted us: a pooler's, and others' next.
select set_config(settings.name, settings.value, false)
from (
    values
        ('statement_timeout', %(statement_timeout)s),
        ('idle_in_transaction_session_timeout', %(statement_timeout)s),
        ('client_min_messages', 'warning'),
        ('default_transaction_isolation', 'read committed'),
        ('client_connection_check_interval', '1s')
) as settings (name, value)
join pg_settings on pg_settings.name = settings.name
where pg_backend_pid() = %(backend_pid)s
