-- As job/words_of_owner, for the newest jobs of all owners. Index: job_pkey backwards.
SELECT word, count(*) AS n, array_agg(id ORDER BY id DESC) FILTER (WHERE word IN ('running', 'ingesting')) AS ids FROM (
    SELECT id, CASE WHEN closed_as IS NOT NULL THEN closed_as WHEN intent IN ('cancel', 'fail') THEN 'cancelling'
        WHEN intent = 'pause' THEN 'paused' WHEN ingest_done THEN 'running' ELSE 'ingesting' END AS word
    FROM tidemill.job ORDER BY id DESC LIMIT %(budget)s
) seen GROUP BY word
