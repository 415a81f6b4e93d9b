-- From here on submit_tasks takes idempotency keys and says a verdict, and cancel_task is told whether to notify; the
-- tables have had the columns since 0001. The earlier submit_tasks, of five parameters, and cancel_task, of one, stay for
-- the programs that call them until a later migration drops them.
-- Locks tally.task against other changes of its definition only, for a moment.
comment on column tally.task.idempotency_key is 'chosen by the client: the same submission again is this task';
comment on column tally.task.digest is 'tally.submission_digest(kind, input) of the submission that made the row';
