-- Jobs, one owner's, the newest first, by what their own rows say; `word` is a guess at the status that sums may refine.
-- At most `budget` are looked at; the one behind the last of these comes too, as the end. Index: job_of_owner backwards.
SELECT id, n > %(budget)s AS is_end FROM (
    SELECT *, row_number() OVER (ORDER BY owner_id DESC, id DESC) AS n FROM (
        SELECT owner_id, id, key, kind, created_at,
            CASE WHEN closed_as IS NOT NULL THEN closed_as WHEN intent IN ('cancel', 'fail') THEN 'cancelling'
                WHEN intent = 'pause' THEN 'paused' WHEN ingest_done THEN 'running' ELSE 'ingesting' END AS word
        FROM tidemill.job
        -- Rows are compared whole: else job_pkey may be walked backwards past the jobs of everybody else.
        WHERE (owner_id, id) >= (%(owner_id)s, %(lo)s) AND (owner_id, id) <= (%(owner_id)s, %(hi)s)
        ORDER BY owner_id DESC, id DESC LIMIT %(budget)s + 1
    ) seen
) numbered
WHERE n > %(budget)s OR (
    (%(words)s::text[] IS NULL OR word = ANY(%(words)s)) AND (%(kind)s::text IS NULL OR kind = %(kind)s)
    AND (%(created_from)s::timestamptz IS NULL OR created_at >= %(created_from)s)
    AND (%(created_to)s::timestamptz IS NULL OR created_at < %(created_to)s) AND starts_with(key, %(prefix)s))
ORDER BY owner_id DESC, id DESC LIMIT %(limit)s
