-- How many rows arrived.
SELECT count(*) FROM tidemill_bench.articles
