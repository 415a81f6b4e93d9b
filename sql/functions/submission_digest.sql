-- What tells two submissions under one idempotency key apart: a hash of the kind and the input as jsonb writes them,
-- so that neither white space nor the order of members counts, and 1.0 is not 1.
create or replace function tally.submission_digest(p_kind text, p_input jsonb)
returns bytea
language sql
immutable
as $$
    select sha256(convert_to(jsonb_build_object('kind', p_kind, 'input', p_input)::text, 'UTF8'))
$$;
