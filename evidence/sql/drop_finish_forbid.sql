-- Undoes finish_forbid.sql.
do $$
begin
    execute format('grant execute on function tally.finish_tasks to %I', current_database());
end
$$;
