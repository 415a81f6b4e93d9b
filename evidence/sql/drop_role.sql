-- Removes what role.sql made.
do $$
begin
    execute format('drop owned by %I', current_database());
    execute format('drop role %I', current_database());
end
$$;
