-- Add a progress sample for each of these jobs that is open and has progressed since its last sample. Cancelled items
-- are not progress. Index: job_pkey, batch_unfolded, job_sample_pkey.
INSERT INTO tidemill.job_sample (job_id, at, settled, failed)
SELECT p.id, tidemill.now(), p.settled, p.failed
FROM (
    SELECT id, failed, done + not_found + skipped + failed AS settled
    FROM tidemill.job_progress WHERE id = ANY(%(job_ids)s) AND closed_as IS NULL
) p
LEFT JOIN LATERAL (
    SELECT s.settled, s.failed FROM tidemill.job_sample s WHERE s.job_id = p.id ORDER BY s.at DESC LIMIT 1
) last ON true
WHERE (p.settled, p.failed) IS DISTINCT FROM (coalesce(last.settled, 0), coalesce(last.failed, 0))
ON CONFLICT (job_id, at) DO NOTHING
RETURNING job_id
