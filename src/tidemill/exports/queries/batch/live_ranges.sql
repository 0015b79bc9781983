-- Range batches of a job, which determine the status of items without an outcome, by their end. Index: batch_cover.
SELECT lo, hi, state FROM tidemill.batch
WHERE job_id = %(job_id)s AND seqs IS NULL AND state <> 'done' ORDER BY hi
