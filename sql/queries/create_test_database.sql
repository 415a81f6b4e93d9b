-- A database for tests, in UTF-8 whatever the server's default is: the template of a test session, or a test's clone of it.
create database {database} template {template} encoding 'UTF8'
