-- Every dispatcher that has not stopped, but for the one that asks; `locked`: somebody holds its proof of life.
select
    dispatcher.id, dispatcher.beat, dispatcher.host, dispatcher.pid,
    dispatcher.boot_id, dispatcher.network_namespace,
    tally.dispatcher_lock_key(dispatcher.id) in (select held.key from tally.held_keys() as held) as locked
from tally.dispatcher
where dispatcher.stopped_at is null and dispatcher.id <> %(dispatcher)s
