-- One task and its NOTIFY, in a transaction of their own.
with queued as (
    insert into tally.task (token, queue, kind, input)
    values (gen_random_uuid(), 'default', %(kind)s, %(input)s::jsonb)
    returning id
)
select queued.id, pg_notify('tally_work', '') from queued
