-- A submit counts the open tasks of its queue only where what was counted before does not decide.
-- Locks tally.queue against everything for a moment: adding these columns rewrites nothing.
alter table tally.queue
    add column counted_open bigint not null default 0,
    add column counted_at bigint not null default 0;
comment on column tally.queue.counted_open is 'how many tasks were open when they were last counted';
comment on column tally.queue.counted_at is 'the last position drawn before that: no more can have come since than were drawn';

update tally.migration set serves = 2 where version = 5;
