-- Every kind that a worker which was heard of lately can run.
SELECT DISTINCT kind FROM tidemill.worker w
CROSS JOIN LATERAL jsonb_array_elements_text(CASE jsonb_typeof(w.info->'kinds') WHEN 'array' THEN w.info->'kinds' ELSE '[]' END)
    AS k(kind)
WHERE w.seen_at > tidemill.now() - %(seconds)s * interval '1 second'
