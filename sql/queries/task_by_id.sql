select found.document from tally.task_by_id(%(id)s) as found (document)
