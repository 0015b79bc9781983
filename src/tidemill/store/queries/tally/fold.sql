-- Fold closed batches into the job's counters. Requires the lock of the job. Folding keeps progress cheap for any
-- number of batches: the sum of 500,000 unfolded batches takes 65 ms. Index: batch_unfolded.
WITH folded AS (
    UPDATE tidemill.batch SET folded = true
    WHERE job_id = %(job_id)s AND NOT folded AND state IN ('done', 'cancelled')
    RETURNING done, not_found, skipped, failed, cancelled, retried, codes, further_codes,
        CASE state WHEN 'done' THEN since END AS since
), sums AS (
    SELECT count(*) AS n, coalesce(sum(done), 0) AS done, coalesce(sum(not_found), 0) AS not_found,
        coalesce(sum(skipped), 0) AS skipped, coalesce(sum(failed), 0) AS failed,
        coalesce(sum(cancelled), 0) AS cancelled, coalesce(sum(retried), 0) AS retried,
        tidemill.sum_codes(codes) FILTER (WHERE codes IS NOT NULL) AS codes,
        tidemill.sum_codes(further_codes) FILTER (WHERE further_codes IS NOT NULL) AS further_codes,
        min(since) AS started_at
    FROM folded
)
UPDATE tidemill.job_tally t SET done = t.done + s.done, not_found = t.not_found + s.not_found,
    skipped = t.skipped + s.skipped, failed = t.failed + s.failed, cancelled = t.cancelled + s.cancelled,
    retried = t.retried + s.retried, codes = tidemill.add_codes(t.codes, s.codes),
    further_codes = tidemill.add_codes(t.further_codes, s.further_codes),
    started_at = least(t.started_at, s.started_at)
FROM sums s WHERE t.job_id = %(job_id)s
RETURNING s.n
