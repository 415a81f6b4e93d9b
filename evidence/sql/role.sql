-- Makes a role for the programs that owns nothing and is no superuser, named as the database, with what they need.
-- Removed by drop_role.sql.
do $$
begin
    execute format('create role %I login', current_database());
    execute format('grant usage on schema tally to %I', current_database());
    execute format('grant select, insert, update on all tables in schema tally to %I', current_database());
    execute format('grant usage on all sequences in schema tally to %I', current_database());
    execute format('grant execute on all functions in schema tally to %I', current_database());
end
$$;
