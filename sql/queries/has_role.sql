-- Is there a role of this name?
select exists (select from pg_roles where rolname = %(name)s)
