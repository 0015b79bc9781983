-- Each run starts with empty tables.
TRUNCATE tidemill_bench.users, tidemill_bench.articles, tidemill_bench.payments
