-- What changes whenever a job's results do: an export of the same state is the same export. Index: job_pkey, batch_unfolded.
SELECT purged_at, updated_at, closed_at, result_columns, total, pending, processing, retry_wait, done, not_found,
    skipped, failed, cancelled, retried
FROM tidemill.job_progress WHERE id = %(job_id)s
