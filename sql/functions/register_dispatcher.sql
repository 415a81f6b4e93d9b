-- A dispatcher enters itself, once per boot, before its first claim. Asking again with the same id (the reply
-- was lost) changes nothing. Called by the dispatcher's session, which holds the id's advisory lock already.
create or replace function tally.register_dispatcher(
    p_dispatcher uuid,
    p_host text,
    p_boot_id text,
    p_network_namespace text,
    p_pid integer,
    p_slots integer,
    p_queue text
)
returns void
language sql
as $$
    insert into tally.dispatcher (id, host, boot_id, network_namespace, pid, slots, queue)
    values (p_dispatcher, p_host, p_boot_id, p_network_namespace, p_pid, p_slots, p_queue)
    on conflict (id) do nothing
$$;

-- For dispatchers that know no later migration than 0002, until a later one drops it: their queue is not told.
create or replace function tally.register_dispatcher(
    p_dispatcher uuid,
    p_host text,
    p_boot_id text,
    p_network_namespace text,
    p_pid integer,
    p_slots integer
)
returns void
language sql
as $$
    select tally.register_dispatcher(p_dispatcher, p_host, p_boot_id, p_network_namespace, p_pid, p_slots, null)
$$;
