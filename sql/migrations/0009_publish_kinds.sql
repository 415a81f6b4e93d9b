-- What the dispatchers declare of each kind, as the last of them said it. Locks nothing that exists.
create sequence tally.kind_revision as bigint;

create table tally.kind (
    kind text primary key,
    queue text not null,
    input_schema jsonb,
    slot text not null,
    time_limit_seconds double precision,
    max_attempts integer not null,
    on_crash text not null,
    backoff_first_seconds double precision not null,
    backoff_factor double precision not null,
    backoff_cap_seconds double precision not null,
    revision bigint not null,
    published_at timestamptz not null default clock_timestamp(),
    published_by uuid not null,
    constraint revision_is_unique unique (revision),
    constraint kind_is_short check (octet_length(kind) between 1 and 255),
    constraint input_schema_is_an_object check (jsonb_typeof(input_schema) = 'object'),
    constraint slot_is_known check (slot in ('thread', 'process')),
    constraint time_limit_is_positive check (time_limit_seconds > 0),
    constraint max_attempts_are_positive check (max_attempts >= 1),
    constraint on_crash_is_known check (on_crash in ('fail', 'retry')),
    constraint backoff_does_not_shrink
        check (backoff_first_seconds >= 0 and backoff_factor >= 1 and backoff_cap_seconds >= 0)
);
comment on column tally.kind.revision is 'higher than any before it whenever a row changes';

update tally.migration set serves = 2 where version = 9;
