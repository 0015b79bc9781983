-- List jobs of one owner, newest first, by the columns of the job row alone; `word` is a preliminary status that the
-- counts may refine. Reads at most `budget` jobs; the job after these marks the end of the scan (is_end). Index:
-- job_of_owner backwards.
SELECT id, n > %(budget)s AS is_end FROM (
    SELECT *, row_number() OVER (ORDER BY owner_id DESC, id DESC) AS n FROM (
        SELECT owner_id, id, key, kind, created_at, search_text,
            CASE WHEN closed_as IS NOT NULL THEN closed_as WHEN intent IN ('cancel', 'fail') THEN 'cancelling'
                WHEN intent = 'pause' THEN 'paused' WHEN ingest_done THEN 'running' ELSE 'ingesting' END AS word
        FROM tidemill.job
        -- Row comparison keeps the planner from scanning job_pkey backwards past the jobs of other owners.
        WHERE (owner_id, id) >= (%(owner_id)s, %(lo)s) AND (owner_id, id) <= (%(owner_id)s, %(hi)s)
        ORDER BY owner_id DESC, id DESC LIMIT %(budget)s + 1
    ) seen
) numbered
WHERE n > %(budget)s OR (
    (%(words)s::text[] IS NULL OR word = ANY(%(words)s)) AND (%(kind)s::text IS NULL OR kind = %(kind)s)
    AND (%(created_from)s::timestamptz IS NULL OR created_at >= %(created_from)s)
    AND (%(created_to)s::timestamptz IS NULL OR created_at < %(created_to)s) AND starts_with(key, %(prefix)s)
    AND (%(search)s::text IS NULL OR strpos(search_text, lower(%(search)s)) > 0))
ORDER BY owner_id DESC, id DESC LIMIT %(limit)s
