-- Each round starts with empty tables.
TRUNCATE tidemill_bench.item, tidemill_bench.outcome
