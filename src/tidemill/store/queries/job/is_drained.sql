-- Whether a job has no open batch. Run it after locking the job, as a separate statement: in one statement, the check
-- would use a snapshot older than the lock. ORDER BY … LIMIT keeps the generic plan of a prepared statement on the
-- index. Index: batch_claim, batch_turning.
SELECT (SELECT 1 FROM tidemill.batch WHERE job_id = %(job_id)s AND state = 'ready' ORDER BY not_before, id LIMIT 1) IS NULL
   AND (SELECT 1 FROM tidemill.batch WHERE job_id = %(job_id)s AND state = 'leased' ORDER BY job_id LIMIT 1) IS NULL
    AS drained
