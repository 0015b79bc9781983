-- Count the newest jobs of an owner by preliminary status (`word`), from the columns of the job row alone. Counts may
-- refine the status of the jobs whose ids are returned. Reads at most `budget` jobs. Index: job_of_owner backwards.
SELECT word, count(*) AS n, array_agg(id ORDER BY id DESC) FILTER (WHERE word IN ('running', 'ingesting')) AS ids FROM (
    SELECT id, CASE WHEN closed_as IS NOT NULL THEN closed_as WHEN intent IN ('cancel', 'fail') THEN 'cancelling'
        WHEN intent = 'pause' THEN 'paused' WHEN ingest_done THEN 'running' ELSE 'ingesting' END AS word
    FROM tidemill.job WHERE owner_id = %(owner_id)s ORDER BY owner_id DESC, id DESC LIMIT %(budget)s
) seen GROUP BY word
