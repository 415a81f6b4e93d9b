-- Remember that a migration is applied, in its own transaction, and first: from 0004 on it then says whom it serves.
insert into tally.migration (version, name) values (%(version)s, %(name)s)
