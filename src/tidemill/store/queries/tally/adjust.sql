-- Subtract the terminal counts of requeued items. Requires the lock of the job.
UPDATE tidemill.job_tally SET done = done - %(done)s, not_found = not_found - %(not_found)s,
    skipped = skipped - %(skipped)s, failed = failed - %(failed)s, cancelled = cancelled - %(cancelled)s,
    codes = tidemill.add_codes(codes, %(codes)s), further_codes = tidemill.add_codes(further_codes, %(further_codes)s)
WHERE job_id = %(job_id)s
