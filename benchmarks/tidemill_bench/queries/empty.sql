-- Each round begins with empty tables.
TRUNCATE tidemill_bench.item, tidemill_bench.outcome
