-- List open jobs that seem to have no open work. The caller locks and checks each of them again. Index: job_runnable,
-- batch_claim.
SELECT j.id FROM tidemill.job j
WHERE j.closed_as IS NULL AND (j.ingest_done OR j.intent IN ('cancel', 'fail'))
  AND NOT EXISTS (SELECT 1 FROM tidemill.batch b WHERE b.job_id = j.id AND b.state = 'ready')
  AND NOT EXISTS (SELECT 1 FROM tidemill.batch b WHERE b.job_id = j.id AND b.state = 'leased')
ORDER BY j.id LIMIT 500
