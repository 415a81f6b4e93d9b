-- Which server this is.
select current_setting('server_version')
