-- List every kind that a live worker can run, and whether only on demand.
SELECT kind, bool_and(coalesce((w.info->>'on_demand')::boolean, false)) AS on_demand FROM tidemill.worker w
CROSS JOIN LATERAL jsonb_array_elements_text(CASE jsonb_typeof(w.info->'kinds') WHEN 'array' THEN w.info->'kinds' ELSE '[]' END)
    AS k(kind)
WHERE w.seen_at > tidemill.now() - %(seconds)s * interval '1 second'
GROUP BY kind
