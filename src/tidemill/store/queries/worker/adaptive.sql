-- Return the adaptive state of the child processes that run a kind, of live workers. While the kind's source is
-- ingested, also of child processes that may ingest it but have not run the kind yet.
SELECT w.id AS worker, (c->>'child')::integer AS child, extract(epoch FROM tidemill.now() - w.seen_at)::float8 AS silent_s,
    (c->'ingest'->>'chunk_rows')::integer AS chunk_rows, c->'kinds'->%(kind)s AS kind, c->'ingest' AS ingest, c->'database' AS database, c->'pressure' AS pressure
FROM tidemill.worker w CROSS JOIN LATERAL jsonb_array_elements(w.info->'adaptive') AS c
WHERE w.seen_at > tidemill.now() - %(silence)s * interval '1 second'
  AND (c->'kinds' ? %(kind)s OR %(ingesting)s AND w.info->'kinds' ? %(kind)s)
ORDER BY w.started_at, w.id, 2
