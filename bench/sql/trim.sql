-- Remove what was submitted to a queue above a position, as if it had never been.
delete from tally.task where queue = %(queue)s and position > %(position)s
