-- Write something, though no row: where standbys confirm every commit, a primary that was replaced without knowing it
-- cannot commit this.
select pg_logical_emit_message(true, 'tally', 'asked')
