-- What a migration must know of the server: its version number and its encoding.
select current_setting('server_version_num')::integer, current_setting('server_encoding')
