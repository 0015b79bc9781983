-- Return the counts that a failure policy needs. Index: batch_unfolded.
SELECT policy, intent, failed - forgiven AS failed, done + not_found + skipped + failed + cancelled - forgiven AS settled
FROM tidemill.job_progress WHERE id = %(job_id)s AND closed_as IS NULL
