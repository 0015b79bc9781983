-- Copy the newest fixes of a job to another job of the same file. Index: item_fix_pkey.
INSERT INTO tidemill.item_fix (job_id, seq, rev, input, by, at, operation_id)
SELECT DISTINCT ON (seq) %(to_job)s, seq, 1, input, by, at, operation_id FROM tidemill.item_fix
WHERE job_id = %(from_job)s ORDER BY seq, rev DESC
