-- Validate the checks of 0008. The priority 32767 was nobody's, unless somebody wrote it there by hand.
-- Locks tally.task against changes of its definition and against a vacuum, not against traffic, while it reads the table.
update tally.task set priority = 32766 where task.state = 'QUEUED' and task.priority = 32767 and task.due_at is null;

alter table tally.task
    validate constraint attempts_are_a_list,
    validate constraint due_at_set_exactly_with_due_priority,
    validate constraint due_at_set_exactly_while_queued_at_the_last_priority;

update tally.migration set serves = 2 where version = 10;
