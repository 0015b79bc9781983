-- Count the open jobs that no live worker can run, by kind and by what is missing, those with the most jobs first. Reads
-- the first 10,000 open jobs. Index: job_runnable.
WITH provided AS (
    SELECT DISTINCT name FROM tidemill.worker w
    CROSS JOIN LATERAL jsonb_array_elements_text(CASE jsonb_typeof(w.info->'provides') WHEN 'array' THEN w.info->'provides' ELSE '[]' END)
        AS p(name)
    WHERE w.seen_at > tidemill.now() - %(seconds)s * interval '1 second'
)
SELECT kind || CASE WHEN kind <> ALL(%(live)s) THEN '' ELSE ' (' || array_to_string(missing, ', ') || ')' END AS kind,
    count(*) AS jobs
FROM (
    SELECT kind, ARRAY(SELECT name FROM unnest(requires) AS r(name) WHERE name NOT IN (SELECT name FROM provided)) AS missing
    FROM tidemill.job WHERE closed_as IS NULL AND intent = 'run' ORDER BY priority DESC, id LIMIT 10000
) open WHERE kind <> ALL(%(live)s) OR missing <> '{}' GROUP BY 1 ORDER BY jobs DESC, 1 LIMIT %(limit)s
