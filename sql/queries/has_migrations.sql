-- Has any migration been applied here?
select to_regclass('tally.migration') is not null
