-- Columns that change whenever the rows of a job change. Exports of the same state are the same export.
-- Index: job_pkey, batch_unfolded, item_fix_pkey.
SELECT purged_at, updated_at, closed_at, result_columns, total, pending, processing, retry_wait, done, not_found,
    skipped, failed, cancelled, retried,
    (SELECT count(*) FROM tidemill.item_fix f WHERE f.job_id = %(job_id)s) AS fixes
FROM tidemill.job_progress WHERE id = %(job_id)s
