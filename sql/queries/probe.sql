-- Can this connection be written through? No row of ours is touched.
select current_setting('transaction_read_only') = 'off' and not pg_is_in_recovery()
