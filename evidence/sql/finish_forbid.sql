-- Takes from the role of role.sql the privilege to finish tasks, as their owner may. Undone by drop_finish_forbid.sql.
do $$
begin
    execute format('revoke execute on function tally.finish_tasks from %I', current_database());
end
$$;
