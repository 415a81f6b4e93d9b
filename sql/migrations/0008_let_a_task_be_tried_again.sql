-- What a task with several attempts needs: those that ended, when the next is due, and whose retry by hand it is.
-- A task that waits for its time is QUEUED behind all others in the claims' index, at the priority 32767, which is nobody
-- else's: its position there is the microsecond since 1970 that it is due at (docs/decisions/0021). The checks are
-- validated by 0010.
-- Locks tally.task against everything for a moment: adding these columns rewrites nothing.
alter table tally.task
    add column attempts jsonb,
    add column due_at timestamptz,
    add column due_priority smallint,
    add column retry_of bigint,
    add constraint attempts_are_a_list check (jsonb_typeof(attempts) = 'array') not valid,
    add constraint due_at_set_exactly_with_due_priority check ((due_at is null) = (due_priority is null)) not valid,
    add constraint due_at_set_exactly_while_queued_at_the_last_priority
        check ((due_at is not null) = (state = 'QUEUED' and priority = 32767)) not valid;
comment on column tally.task.attempts is 'the attempts that ended and were followed by another';
comment on column tally.task.due_at is 'when the next attempt may begin, while the task waits for that';
comment on column tally.task.due_priority is 'the priority that the task gets back then';
comment on column tally.task.retry_of is 'the task that this one repeats, by hand';

update tally.migration set serves = 2 where version = 8;
