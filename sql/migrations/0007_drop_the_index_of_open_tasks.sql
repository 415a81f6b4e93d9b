-- A task costs one index entry less at its submit and at its claim. The open tasks are the QUEUED ones, which the claims'
-- index holds, and the RUNNING ones, of which there are no more than slots.
-- Locks tally.task against everything for a moment: dropping an index removes files.
drop index tally.task_open;

update tally.migration set serves = 2 where version = 7;
