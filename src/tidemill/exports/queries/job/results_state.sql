-- What changes whenever a job's rows do: an export of the same state is the same export.
-- Index: job_pkey, batch_unfolded, item_fix_pkey.
SELECT purged_at, updated_at, closed_at, result_columns, total, pending, processing, retry_wait, done, not_found,
    skipped, failed, cancelled, retried,
    (SELECT count(*) FROM tidemill.item_fix f WHERE f.job_id = %(job_id)s) AS fixes
FROM tidemill.job_progress WHERE id = %(job_id)s
