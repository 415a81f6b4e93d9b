-- Is there a database of this name?
select exists (select from pg_database where datname = %(name)s)
