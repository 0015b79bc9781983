-- The rows that a job created in other tables. A dry run stores hashes of the rows that it would create, as several
-- batches can miss the same row. Index: effect_job.
SELECT c.key, sum(CASE jsonb_typeof(c.value) WHEN 'number' THEN c.value::bigint ELSE 0 END)::bigint + count(DISTINCT h.hash)
FROM tidemill.effect e CROSS JOIN LATERAL jsonb_each(e.created) c
LEFT JOIN LATERAL jsonb_array_elements_text(CASE jsonb_typeof(c.value) WHEN 'array' THEN c.value END) AS h (hash) ON true
WHERE e.job_id = %(job_id)s GROUP BY c.key ORDER BY c.key
