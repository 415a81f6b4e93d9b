-- The database of our programs on the embedded server.
create database tally owner tally
