-- Which queue a dispatcher serves, and whether its last claim left slots free, so that it waits to be woken: a submit
-- wakes as many dispatchers as it has tasks, and not all there are. A dispatcher of an earlier program has no queue here;
-- where only such wait, everybody is woken.
-- Locks tally.dispatcher against everything for a moment: adding these columns rewrites nothing.
alter table tally.dispatcher
    add column queue text,
    add column waiting boolean not null default false;

create index dispatcher_living on tally.dispatcher (queue) where stopped_at is null;
