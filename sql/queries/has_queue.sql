-- Is there such a queue? No row when there is none.
select queue.name from tally.queue where queue.name = %(queue)s
