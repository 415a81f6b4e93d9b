-- The role that our programs share on the embedded server; it owns their database and nothing else.
create role tally login
