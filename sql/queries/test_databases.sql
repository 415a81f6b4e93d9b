-- The databases of one test session, by the word that their names begin with.
select database.datname from pg_catalog.pg_database as database where starts_with(database.datname, %(word)s)
