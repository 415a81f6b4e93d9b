-- Does this server take the text as jsonb at all? Asked of one result alone, to tell its fault from the world's.
select %(value)s::jsonb is not null
