-- Count the open jobs of kinds that no live worker runs, those with the most jobs first. Reads the first 10,000 open
-- jobs. Index: job_runnable.
SELECT kind, count(*) AS jobs FROM (
    SELECT kind FROM tidemill.job WHERE closed_as IS NULL AND intent = 'run' ORDER BY priority DESC, id LIMIT 10000
) open WHERE kind <> ALL(%(live)s) GROUP BY kind ORDER BY jobs DESC, kind LIMIT %(limit)s
