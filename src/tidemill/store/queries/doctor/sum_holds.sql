-- 2. Every item is counted exactly once: in one open batch or in one terminal counter.
SELECT id AS job_id, total, pending + processing + retry_wait + done + not_found + skipped + failed + cancelled AS counted
FROM tidemill.job_progress
WHERE total <> pending + processing + retry_wait + done + not_found + skipped + failed + cancelled
  AND (%(job_id)s::uuid IS NULL OR id = %(job_id)s) LIMIT 10
