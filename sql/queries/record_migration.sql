-- Remember that a migration was applied, in its own transaction.
insert into tally.migration (version, name) values (%(version)s, %(name)s)
