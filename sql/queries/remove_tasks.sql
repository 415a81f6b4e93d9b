select removed.verdict from tally.remove_tasks(%(ids)s, %(keep)s) as removed
