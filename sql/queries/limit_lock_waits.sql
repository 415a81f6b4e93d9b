-- From here to the end of this transaction no lock is waited for longer than this.
select set_config('lock_timeout', %(lock_timeout)s, true)
