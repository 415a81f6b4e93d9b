-- What the web process must know of the kinds to check a submission, and the revision of each.
select kind.kind, kind.queue, kind.input_schema::text, kind.revision from tally.kind
