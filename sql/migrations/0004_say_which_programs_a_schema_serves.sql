-- From here on each migration says which programs go on working on its schema: those that know the migration `serves`
-- or a later one. Null, as with the migrations before this one, is: none that does not know the migration itself.
-- Locks tally.migration, which is only read by readiness and at start, for a moment.
alter table tally.migration
    add column serves integer,
    add constraint serves_no_later_than_itself check (serves between 1 and version);

update tally.migration set serves = 2 where version = 4;
