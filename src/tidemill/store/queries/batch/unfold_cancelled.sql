-- Subtract cancelled ranges from the folded counters before they are requeued. Requires the lock of the job.
WITH unfolded AS (
    UPDATE tidemill.batch SET folded = false
    WHERE job_id = %(job_id)s AND seqs IS NULL AND state = 'cancelled' AND folded
    RETURNING done, not_found, skipped, failed, cancelled, retried, codes, further_codes
), sums AS (
    SELECT coalesce(sum(done), 0) AS done, coalesce(sum(not_found), 0) AS not_found,
        coalesce(sum(skipped), 0) AS skipped, coalesce(sum(failed), 0) AS failed,
        coalesce(sum(cancelled), 0) AS cancelled, coalesce(sum(retried), 0) AS retried,
        tidemill.sum_codes(codes) FILTER (WHERE codes IS NOT NULL) AS codes,
        tidemill.sum_codes(further_codes) FILTER (WHERE further_codes IS NOT NULL) AS further_codes
    FROM unfolded
)
UPDATE tidemill.job_tally t SET done = t.done - s.done, not_found = t.not_found - s.not_found,
    skipped = t.skipped - s.skipped, failed = t.failed - s.failed, cancelled = t.cancelled - s.cancelled,
    retried = t.retried - s.retried,
    codes = tidemill.add_codes(t.codes, (SELECT jsonb_object_agg(key, -value::bigint) FROM jsonb_each_text(s.codes))),
    further_codes = tidemill.add_codes(t.further_codes,
        (SELECT jsonb_object_agg(key, -value::bigint) FROM jsonb_each_text(s.further_codes)))
FROM sums s WHERE t.job_id = %(job_id)s
