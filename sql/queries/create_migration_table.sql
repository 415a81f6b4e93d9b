-- The first thing of ours in a database: where it is recorded what was applied.
create schema tally;
create table tally.migration (
    version integer primary key,
    name text not null,
    applied_at timestamptz not null default clock_timestamp()
)
