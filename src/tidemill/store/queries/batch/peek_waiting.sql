-- As batch/peek, but wait briefly (lock_timeout). SKIP LOCKED cannot distinguish "no batch is due" from "another worker
-- is carving the only batch", and workers would sleep although there is work. Index: batch_claim, job_pkey,
-- ingest_pkey.
SELECT ready.*, j.sparse, j.request_id, j.traceparent, j.limiter, j.requires
FROM (
    SELECT id AS batch_id, job_id, owner_id, kind, lo, hi, seqs, open, flush_no, isolated, crashes, losses, disconnects, expiries,
        retrying, half
    FROM tidemill.batch
    WHERE job_id = %(job_id)s AND state = 'ready' AND not_before <= tidemill.now()
      AND EXISTS (SELECT 1 FROM tidemill.job WHERE id = %(job_id)s AND intent = 'run' AND closed_as IS NULL
                  AND (ingest_done OR NOT EXISTS (SELECT 1 FROM tidemill.ingest WHERE job_id = %(job_id)s AND rows_wait_for_end)))
    ORDER BY not_before, id LIMIT 1 FOR UPDATE
) ready JOIN tidemill.job j ON j.id = %(job_id)s
