-- Set a queue's capacity, making the queue when there is none; null is unbounded.
insert into tally.queue (name, max_open) values (%(queue)s, %(max_open)s)
on conflict (name) do update set max_open = excluded.max_open
