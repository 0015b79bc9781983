-- Return and lock the next due batch of a job that no other worker has locked, with the job's columns that a lease
-- needs. Returns nothing while rows must wait for the end of their source, even if a worker has released a batch that
-- is due. Index: batch_claim, job_pkey, ingest_pkey.
SELECT ready.*, j.sparse, j.request_id, j.traceparent, j.limiter, j.requires
FROM (
    SELECT id AS batch_id, job_id, owner_id, kind, lo, hi, seqs, open, flush_no, isolated, crashes, losses, disconnects, expiries,
        retrying, half
    FROM tidemill.batch
    WHERE job_id = %(job_id)s AND state = 'ready' AND not_before <= tidemill.now()
      AND EXISTS (SELECT 1 FROM tidemill.job WHERE id = %(job_id)s AND intent = 'run' AND closed_as IS NULL
                  AND (ingest_done OR NOT EXISTS (SELECT 1 FROM tidemill.ingest WHERE job_id = %(job_id)s AND rows_wait_for_end)))
    ORDER BY not_before, id LIMIT 1 FOR UPDATE SKIP LOCKED
) ready JOIN tidemill.job j ON j.id = %(job_id)s
