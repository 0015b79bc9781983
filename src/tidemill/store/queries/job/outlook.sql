-- Whether a job has open work, and when the next of it is due: at once while its source is not read completely. ORDER
-- BY … LIMIT keeps each lookup on one row of its index. Index: job_pkey, batch_claim, batch_turning.
SELECT is_open, next_due_at,
    CASE WHEN next_due_at IS NOT NULL THEN greatest(extract(epoch FROM next_due_at - tidemill.now()), 0)::float8 END AS due_in
FROM (
    SELECT j.closed_as IS NULL AND (NOT j.ingest_done OR ready.not_before IS NOT NULL OR EXISTS (
            SELECT 1 FROM tidemill.batch WHERE job_id = j.id AND state = 'leased' ORDER BY job_id LIMIT 1
        )) AS is_open,
        CASE WHEN j.closed_as IS NULL AND j.intent = 'run' THEN
            CASE WHEN j.ingest_done THEN ready.not_before ELSE tidemill.now() END
        END AS next_due_at
    FROM tidemill.job j LEFT JOIN LATERAL (
        SELECT not_before FROM tidemill.batch WHERE job_id = j.id AND state = 'ready' ORDER BY not_before, id LIMIT 1
    ) ready ON true
    WHERE j.id = %(job_id)s
) outlook
